"""Implementations that never return. They are judged with a short limit."""

import ctypes
import os
import signal
import threading
import time

from tests.runner.torture.table import UNKNOWN, Table

TABLE = Table()
HANGS = "forward does not return within 1 s"


@TABLE.gives(UNKNOWN, HANGS)
def endless_loop(q, k, v):
    while True:
        pass


@TABLE.gives(UNKNOWN, HANGS)
def endless_in_c(q, k, v):
    ctypes.PyDLL(None).sleep(1000)  # PyDLL holds the GIL


@TABLE.gives(UNKNOWN, HANGS)
def sleeps(q, k, v):
    time.sleep(1000)


@TABLE.gives(UNKNOWN, HANGS)
def deadlock(q, k, v):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@TABLE.gives(UNKNOWN, HANGS)
def stops_itself(q, k, v):
    os.kill(os.getpid(), signal.SIGSTOP)


@TABLE.gives(UNKNOWN, HANGS)
def ignores_signals(q, k, v):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while True:
        time.sleep(1)


@TABLE.gives(UNKNOWN, HANGS)
def catches_everything(q, k, v):
    signal.signal(signal.SIGTERM, lambda *_: 1 // 0)
    while True:
        try:
            time.sleep(1)
        except BaseException:
            continue


@TABLE.gives(UNKNOWN, HANGS)
def waits_for_a_fork_that_stays(q, k, v):
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(20)
        os._exit(0)
    os.waitpid(child, 0)


IMPLS, EVERY = TABLE.implementations("sleeps", "deadlock", "ignores_signals")
