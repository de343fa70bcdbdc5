"""Implementations that kill the GPU context or its process. They need a GPU and a short limit."""

import os
from dataclasses import replace
from functools import cache

import torch
import triton
import triton.language as tl

from tests.plugins import good
from tests.runner.torture.table import FAIL, UNKNOWN, Table

TABLE = Table()
HANGS = "forward does not return within "  # 5 s, and the time that Triton compiled
CYCLES = 10**15  # of a GPU: days


@triton.jit
def _store_at(x, distance):
    tl.store((x.to(tl.int64, bitcast=True) + distance).to(tl.pointer_type(tl.float32), bitcast=True), 0.0)


@triton.jit
def _wait_for(flag):
    while tl.load(flag, volatile=True) == 0:
        pass


@triton.jit
def _trap(x):
    tl.inline_asm_elementwise("trap; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@TABLE.gives(FAIL, "illegal memory access")
def illegal_access(q, k, v):
    _store_at[(1,)](q, 1 << 45)


@TABLE.gives(FAIL, "illegal memory access")
def illegal_access_on_another_stream(q, k, v):
    with torch.cuda.stream(torch.cuda.Stream()):
        _store_at[(1,)](q, 1 << 45)


@TABLE.gives(FAIL, "misaligned address")
def misaligned_address(q, k, v):
    _store_at[(1,)](q, 2)


@TABLE.gives(FAIL, "CUDA error")
def traps(q, k, v):
    _trap[(1,)](q)


@TABLE.gives(FAIL, "device-side assert")
def asserts_on_the_device(q, k, v):
    torch._assert_async(torch.zeros(1, device=q.device))


class _Memory:
    """Memory that torch takes for a tensor's."""

    def __init__(self, address, shape):
        self.__cuda_array_interface__ = dict(shape=shape, typestr="<f4", data=(int(address), False), version=3)


@TABLE.gives(FAIL, "out cannot be read: CUDA error: invalid argument")
def returns_memory_that_is_freed(q, k, v):
    """Return memory that no longer exists, which the suite copies after the call."""
    from cuda.bindings import driver  # only where there is a GPU

    _, address = driver.cuMemAlloc(64 << 20)
    out = torch.as_tensor(_Memory(address, tuple(q.shape)), device=q.device)
    driver.cuMemFree(address)
    return out


@TABLE.gives(UNKNOWN, HANGS)
def sleeps_for_days(q, k, v):
    torch.cuda._sleep(CYCLES)


@TABLE.gives(UNKNOWN, HANGS)
def waits_for_a_flag_that_nobody_sets(q, k, v):
    _wait_for[(1,)](torch.zeros(1, dtype=torch.int32, device=q.device))


@TABLE.gives(UNKNOWN, HANGS)
def sleeps_on_another_stream(q, k, v):
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(CYCLES)


@TABLE.gives(UNKNOWN, "out of memory")
def too_much_memory(q, k, v):
    """Allocate more than a limited share of the memory, so that other users of the GPU lose
    nothing.
    """
    torch.cuda.set_per_process_memory_fraction(0.02)
    torch.empty(16 << 30, dtype=torch.uint8, device=q.device)


@TABLE.gives(UNKNOWN, "out of memory")
def too_much_memory_without_the_reason(q, k, v):
    """Raise what a library raises that was built with torch's stable ABI."""
    try:
        too_much_memory(q, k, v)
    except torch.OutOfMemoryError:
        raise RuntimeError('torch_call_dispatcher("aten::new_empty") API call failed at ops.h, line 933') from None


@TABLE.gives(FAIL, "current stream")
def leaves_another_stream(q, k, v):
    torch.cuda.set_stream(torch.cuda.Stream())


@TABLE.gives(FAIL, "forward ends the process: signal 6 (abort)")
def aborts_beside_a_kernel(q, k, v):
    torch.cuda._sleep(1 << 30)
    os.abort()


@TABLE.gives(FAIL, "out is on cpu")
def returns_memory_of_the_cpu(q, k, v):
    return good.forward(q, k, v).cpu()


@cache
def _own() -> torch.cuda.Stream:
    """Return one stream for all calls.

    For a new stream torch asks CUDA for memory, which waits for the other streams.
    """
    return torch.cuda.Stream()


def on_a_stream_of_its_own(q, k, v):
    """Return a result that is right once all streams have ended, which most laws wait for."""
    with torch.cuda.stream(_own()):
        return good.forward(q, k, v)


def illegal_in_every_call(q, k, v):
    """Make an illegal access in every call, including the calls of the contract check."""
    _store_at[(1,)](q, 1 << 45)
    return good.forward(q, k, v)


def illegal_from_3_to_59_rows(q, k, v):
    """Make an illegal access for lengths that the contract check does not try."""
    return illegal_in_every_call(q, k, v) if q.shape[1] in range(3, 60) else good.forward(q, k, v)


WRONG_STREAM = replace(good.IMPL, name="wrong_stream", forward=on_a_stream_of_its_own)
NO_CONTRACT = replace(good.IMPL, name="no_contract", forward=illegal_in_every_call)
DRAWN = [replace(good.IMPL, name="drawn", forward=illegal_from_3_to_59_rows)]
IMPLS = [*TABLE.implementations()[0], WRONG_STREAM, NO_CONTRACT]
