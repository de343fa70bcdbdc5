"""Implementations that end or fork their process, or start threads that do so later."""

import atexit
import ctypes
import faulthandler
import os
import resource
import signal
import sys
import threading
import time

from tests.runner.torture.table import FAIL, PASS, UNKNOWN, Table

TABLE = Table()
ENDS = "forward ends the process: "


def gives_signal(number, name, words):
    def act(q, k, v):
        os.kill(os.getpid(), number)

    act.__name__ = name
    TABLE.gives(FAIL, f"{ENDS}signal {int(number)} ({words})")(act)


gives_signal(signal.SIGBUS, "bus_error", "bus error")
gives_signal(signal.SIGFPE, "arithmetic_error", "arithmetic error")
gives_signal(signal.SIGILL, "illegal_instruction", "illegal instruction")
gives_signal(signal.SIGTRAP, "trap", "trap")
gives_signal(signal.SIGSYS, "forbidden_call", "forbidden system call")


@TABLE.gives(FAIL, f"{ENDS}signal 11 (segmentation fault)")
def segmentation_fault(q, k, v):
    ctypes.string_at(0)


@TABLE.gives(FAIL, f"{ENDS}signal 6 (abort)")
def aborts(q, k, v):
    os.abort()


@TABLE.gives(FAIL, f"{ENDS}signal 11 (segmentation fault)")
def stack_overflow(q, k, v):
    faulthandler._stack_overflow()


@TABLE.gives(FAIL, f"{ENDS}exit status 0")
def exits_with_0(q, k, v):
    os._exit(0)


@TABLE.gives(FAIL, f"{ENDS}exit status 3")
def exits_with_3(q, k, v):
    os._exit(3)


@TABLE.gives(FAIL, f"{ENDS}exit status 0")
def exits_from_c(q, k, v):
    ctypes.CDLL(None).exit(0)


@TABLE.gives(UNKNOWN, "signal 9 (killed)")
def kills_itself(q, k, v):
    os.kill(os.getpid(), signal.SIGKILL)


@TABLE.gives(UNKNOWN, "signal 15 (told to end)")
def terminates_itself(q, k, v):
    os.kill(os.getpid(), signal.SIGTERM)


@TABLE.gives("fail unknown", "signal 2")
def interrupts_itself(q, k, v):
    os.kill(os.getpid(), signal.SIGINT)


@TABLE.gives("pass unknown")
def kills_its_parent(q, k, v):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.1)


@TABLE.gives(UNKNOWN, "signal 9 (killed)")
def kills_its_group(q, k, v):
    os.killpg(0, signal.SIGKILL)


@TABLE.gives("fail unknown", "signal")
def has_no_time(q, k, v):
    resource.setrlimit(resource.RLIMIT_CPU, (0, 0))
    while True:
        pass


@TABLE.gives(PASS)
def forks(q, k, v):
    os.fork()


@TABLE.gives(PASS)
def fork_bomb(q, k, v):
    for _ in range(3):
        os.fork()


@TABLE.gives(PASS)
def fork_crashes(q, k, v):
    if os.fork() == 0:
        os.abort()


@TABLE.gives(PASS)
def fork_stays(q, k, v):
    if os.fork() == 0:
        time.sleep(1000)


@TABLE.gives(FAIL, "forward raises ValueError: parent")
def fork_raises(q, k, v):
    raise ValueError("parent" if os.fork() else "child")


@TABLE.gives(PASS)
def daemon_stays(q, k, v):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)


@TABLE.gives(FAIL, f"{ENDS}exit status 5")
def parent_of_fork_exits(q, k, v):
    if os.fork():
        os._exit(5)
    time.sleep(0.2)


@TABLE.gives("pass fail unknown")
def thread_crashes_later(q, k, v):
    threading.Timer(0.002, lambda: ctypes.string_at(0)).start()


@TABLE.gives(FAIL, f"{ENDS}exit status 6")
def thread_exits(q, k, v):
    threading.Thread(target=lambda: os._exit(6)).start()
    time.sleep(1)


@TABLE.gives(PASS)
def thread_raises(q, k, v):
    thread = threading.Thread(target=lambda: 1 // 0)
    thread.start()
    thread.join()


@TABLE.gives(PASS)
def thread_never_ends(q, k, v):
    threading.Thread(target=threading.Event().wait).start()


@TABLE.gives(PASS)
def many_threads(q, k, v):
    for _ in range(100):
        threading.Thread(target=threading.Event().wait, daemon=True).start()


@TABLE.gives(PASS)
def exit_handler_hangs(q, k, v):
    atexit.register(time.sleep, 1000)


class Deleted:
    def __init__(self, act):
        self.act = act

    def __del__(self):
        self.act()


@TABLE.gives(PASS)
def del_raises(q, k, v):
    Deleted(lambda: 1 // 0)


@TABLE.gives(FAIL, f"{ENDS}exit status 4")
def del_exits(q, k, v):
    Deleted(lambda: os._exit(4))


@TABLE.gives("pass fail unknown")
def del_of_an_output_exits(q, k, v):
    from tests.plugins import good

    out = good.forward(q, k, v)
    out.tied = Deleted(lambda: os._exit(4))
    return out


@TABLE.gives("pass fail unknown")
def profiler_exits(q, k, v):
    calls = iter(range(1000))
    sys.setprofile(lambda *_: os._exit(7) if next(calls) > 500 else None)


IMPLS, EVERY = TABLE.implementations(
    "arithmetic_error",
    "illegal_instruction",
    "trap",
    "forbidden_call",
    "exits_with_3",
    "has_no_time",
    "fork_bomb",
    "thread_crashes_later",
    "thread_raises",
    "many_threads",
    "del_raises",
    "del_of_an_output_exits",
    "profiler_exits",
)
