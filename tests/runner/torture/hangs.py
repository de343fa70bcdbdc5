"""Implementations that never return. They are judged with a short limit."""

import ctypes
import os
import signal
import threading
import time

import torch

from tests.plugins import good
from tests.runner.torture.table import FAIL, UNKNOWN, Table

TABLE = Table()
HANGS = "forward does not return within 2 s"


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
        time.sleep(1000)
        os._exit(0)
    os.waitpid(child, 0)


class Hanging(Exception):
    """Its text never comes."""

    def __str__(self):
        time.sleep(1000)


@TABLE.gives(UNKNOWN, "forward raises Hanging, whose __str__ does not return within 2 s")
def str_hangs(q, k, v):
    raise Hanging


@TABLE.gives(UNKNOWN, "forward raises Hanging, whose __str__ does not return within 2 s")
def str_of_memory_error_hangs(q, k, v):
    raise type("Hanging", (MemoryError,), {"__str__": lambda self: time.sleep(1000)})


class Deleted:
    """Hangs when it is deleted."""

    def __del__(self):
        time.sleep(1000)


@TABLE.gives(UNKNOWN, HANGS)
def del_of_an_output_hangs(q, k, v):
    out = good.forward(q, k, v)
    out.tied = Deleted()
    return out


@TABLE.gives(UNKNOWN, HANGS)
def del_of_a_local_hangs(q, k, v):
    local = Deleted()
    raise ValueError(id(local))


class Endless(tuple):
    """A result whose questions are never answered."""

    def __len__(self):
        time.sleep(1000)


@TABLE.gives(UNKNOWN, HANGS)
def len_hangs(q, k, v):
    return Endless((good.forward(q, k, v),))


class Classless:
    """A result that does not say what it is."""

    @property
    def __class__(self):
        time.sleep(1000)


@TABLE.gives(UNKNOWN, HANGS)
def class_hangs(q, k, v):
    return Classless()


def hangs(*arguments, **options):
    time.sleep(1000)


class Asked(torch.Tensor):
    """A result that never answers a question, but need not be asked any."""

    __torch_function__ = classmethod(hangs)
    __repr__ = __str__ = __eq__ = __bool__ = __len__ = __iter__ = __format__ = __hash__ = hangs
    shape = dtype = device = grad_fn = requires_grad = property(hangs)


@TABLE.gives("pass unknown")
def everything_hangs(q, k, v):
    return good.forward(q, k, v).as_subclass(Asked)


class Odd:
    """An object that never answers a question."""

    __repr__ = __str__ = __eq__ = __bool__ = __len__ = __iter__ = __format__ = __getattr__ = hangs


@TABLE.gives(FAIL, "forward returns Odd: should be out")
def object_hangs(q, k, v):
    return Odd()


IMPLS, EVERY = TABLE.implementations(
    "sleeps", "deadlock", "ignores_signals", "str_of_memory_error_hangs", "class_hangs", "del_of_a_local_hangs"
)
