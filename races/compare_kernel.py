"""Compares all outputs of a call with the first ones in one launch, as ByTorch in compare.py does.

Each program reads its part of one output, and of the first result for it, and ends if no bit
differs. This takes one pass over memory.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

BLOCK = 4096
ALIGNED = 16  # bytes: Triton compiles one kernel for pointers with this alignment, and another for the rest


@triton.jit
def word(x):
    """Return the bits of floats as integers: NaN equals itself, and -0.0 differs from 0.0."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True)
    elif x.dtype == tl.float32:
        return x.to(tl.int32, bitcast=True)
    else:
        return x.to(tl.int16, bitcast=True)


@triton.jit(do_not_specialize=["repeat", "repeats"])
def compare_kernel(
    got, first, counts, differed_ptr, most_ptr, starts_ptr, sizes_ptr, repeat, repeats,
    OUTPUTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compare output n in programs starts[n] .. starts[n + 1] - 1, a block of elements in each.

    Starts and sizes are in memory, because as arguments they would be compiled in for each case.
    """
    program = tl.program_id(0)
    for n in tl.static_range(OUTPUTS):
        start = tl.load(starts_ptr + n)
        if (program >= start) & (program < tl.load(starts_ptr + n + 1)):
            i = (program - start) * BLOCK + tl.arange(0, BLOCK)
            inside = i < tl.load(sizes_ptr + n)
            a = tl.load(got[n] + i, mask=inside, other=0.0)
            b = tl.load(first[n] + i, mask=inside, other=0.0)
            differs = word(a) != word(b)
            if tl.max(differs.to(tl.int32), 0) > 0:
                tl.store(counts[n] + i, tl.load(counts[n] + i, mask=differs, other=0) + 1, mask=differs)
                off = tl.abs(a.to(tl.float64) - b.to(tl.float64)).to(tl.float32)
                off = tl.where(differs, tl.where(off != off, float("inf"), off), 0.0)
                # Floats that are not negative have the same order as their bits.
                tl.atomic_max(most_ptr + n, tl.max(off, 0).to(tl.int32, bitcast=True), sem="relaxed")
                tl.atomic_max(differed_ptr + n * repeats + repeat, 1, sem="relaxed")


class ByKernel:
    """Compares as ByTorch does, but with a kernel.

    Once the kernel is compiled, each repeat launches it directly; on a GPU it passes addresses
    instead of tensors. Otherwise Triton would inspect all arguments again, and ask the driver where
    each tensor is.
    """

    def __init__(
        self, first: list[torch.Tensor], counts: list[torch.Tensor], differed: torch.Tensor, most: torch.Tensor
    ):
        sizes, starts = [row.numel() for row in first], [0]
        for size in sizes:
            starts.append(starts[-1] + triton.cdiv(size, BLOCK))
        tables = (torch.tensor(numbers, dtype=torch.int64, device=differed.device) for numbers in (starts, sizes))
        self.grid = (starts[-1], 1, 1)
        self.fixed = (tuple(first), tuple(counts), differed, most.view(torch.int32), *tables)
        self.constants = (differed.shape[1], len(first), BLOCK)
        # On a GPU a tensor is passed as its address. The emulator needs the tensor.
        self.passed = torch.Tensor.data_ptr if differed.is_cuda else torch.Tensor.detach
        self.fixed_passed: tuple = ()
        self.launch: Callable | None = None

    def __call__(self, got: list[torch.Tensor], repeat: int) -> None:
        """Compare the results of a repeat with the first results."""
        aligned = not any(tensor.data_ptr() % ALIGNED for tensor in got)  # the compiled kernel may rely on this
        if self.launch and aligned:
            self.launch(tuple(map(self.passed, got)), *self.fixed_passed, repeat, *self.constants)
        elif self.grid[0]:
            compiled = compare_kernel[self.grid](tuple(got), *self.fixed, repeat, *self.constants)
            if aligned:
                self.launch = compiled[self.grid]
                first, counts, *others = self.fixed
                self.fixed_passed = (
                    *(tuple(map(self.passed, it)) for it in (first, counts)),
                    *map(self.passed, others),
                )
