"""Kernels that run beside the launch, on a stream of their own, and end by themselves: they keep the SMs busy, or take room.

They end when the launch is done, which they read from memory, and after a bounded time whatever the launch does. So a launch
that needs the whole GPU at once waits, but not for ever.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

LONGEST = 2_000_000  # nanoseconds beside a launch
SETTLES = 20_000  # nanoseconds in which the kernel beside has started
ROOM = 32  # registers of each thread of `hold`; with 1024 threads half of an SM's, so each SM takes one such block


@triton.jit
def pause() -> tl.tensor:
    """Nanoseconds of a clock, after a moment without work, so that many who ask do not fill the memory's queues."""
    return tl.inline_asm_elementwise(
        "nanosleep.u32 200; mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit(do_not_specialize=["nanoseconds"])
def hold(done_ptr, memory_ptr, nanoseconds, ELEMENTS: tl.constexpr):
    """Keep ELEMENTS numbers in registers until memory says that the launch is done, or the time is over."""
    i = tl.arange(0, ELEMENTS)
    kept = tl.load(memory_ptr + i, volatile=True)
    begin = globaltimer()
    now = begin
    while (tl.load(done_ptr, volatile=True) == 0) & (now - begin < nanoseconds):
        now = pause()
    if tl.load(done_ptr, volatile=True) > 1:  # never true; without this store the compiler would drop the loads
        tl.store(memory_ptr + i, kept)


@triton.jit(do_not_specialize=["nanoseconds", "size"])
def work(done_ptr, memory_ptr, size, nanoseconds, ELEMENTS: tl.constexpr):
    """Read all over memory and compute, until it says that the launch is done, or the time is over."""
    i = tl.arange(0, ELEMENTS)
    at = tl.program_id(0) * ELEMENTS % size
    sums = tl.load(memory_ptr + at + i)
    begin = globaltimer()
    now = begin
    while (tl.load(done_ptr, volatile=True) == 0) & (now - begin < nanoseconds):
        at = (at + 97 * ELEMENTS) % size
        sums = sums * 0.5 + tl.load(memory_ptr + at + i, volatile=True)
        now = globaltimer()
    if tl.load(done_ptr, volatile=True) > 1:  # never true; without this store the compiler would drop the loads
        tl.store(memory_ptr + i, sums)


def launch_hold(done: torch.Tensor, blocks: int, nanoseconds: int = LONGEST) -> None:
    """On the current stream: so many blocks, each of which takes half of an SM."""
    elements = 1024 * ROOM
    memory = torch.empty(elements, dtype=torch.float32, device=done.device)
    hold[(blocks,)](done, memory, nanoseconds, elements, num_warps=32)


def launch_work(done: torch.Tensor, blocks: int, memory: torch.Tensor, nanoseconds: int = LONGEST) -> None:
    """On the current stream: so many small blocks that read `memory`."""
    elements = 1024
    work[(blocks,)](done, memory, memory.numel() // elements * elements, nanoseconds, elements, num_warps=4)


def launch_wait(device: torch.device | str, nanoseconds: int) -> None:
    """On the current stream: nothing, for so long."""
    hold[(1,)](
        torch.zeros(1, dtype=torch.int32, device=device),
        torch.zeros(32, device=device),
        nanoseconds, 32, num_warps=1,
    )  # fmt: skip
