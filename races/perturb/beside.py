"""Kernels that run beside a launch, on a separate stream, and keep SMs busy or occupy them.

They end when a flag in memory says that the launch is done, or after a bounded time. So a launch
that needs the whole GPU at once waits, but not forever.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

LONGEST = 2_000_000  # nanoseconds that a kernel may run beside a launch
SETTLES = 20_000  # nanoseconds after which such a kernel has started
ROOM = 32  # registers per thread of `hold`: 1024 threads need half of an SM's registers, so an SM takes one such block


@triton.jit
def pause() -> tl.tensor:
    """Wait, and return the time in nanoseconds. Without waits, many readers would fill queues."""
    return tl.inline_asm_elementwise(
        "nanosleep.u32 200; mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit(do_not_specialize=["nanoseconds"])
def hold(done_ptr, memory_ptr, nanoseconds, ELEMENTS: tl.constexpr):
    """Fill ELEMENTS registers until the flag says that the launch ended, or time is up."""
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
    """Read memory and compute until the flag says that the launch ended, or time is up."""
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
    """Launch `blocks` blocks on the current stream, each of which takes half of an SM."""
    elements = 1024 * ROOM
    memory = torch.empty(elements, dtype=torch.float32, device=done.device)
    hold[(blocks,)](done, memory, nanoseconds, elements, num_warps=32)


def launch_work(done: torch.Tensor, blocks: int, memory: torch.Tensor, nanoseconds: int = LONGEST) -> None:
    """Launch `blocks` small blocks on the current stream, which read `memory`."""
    elements = 1024
    work[(blocks,)](done, memory, memory.numel() // elements * elements, nanoseconds, elements, num_warps=4)


def launch_wait(device: torch.device | str, nanoseconds: int) -> None:
    """Make the current stream wait for this time."""
    hold[(1,)](
        torch.zeros(1, dtype=torch.int32, device=device),
        torch.zeros(32, device=device),
        nanoseconds, 32, num_warps=1,
    )  # fmt: skip
