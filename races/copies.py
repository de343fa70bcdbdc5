"""The copies layer: equal slices within one launch, compared with each other, so that a launch is many comparisons.

Blocks that get the same numbers must give the same bits, whatever runs beside them: slices of the same launch differ in
where and when they run, as repeats do.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flash_attest.races.bits import INTEGERS


@dataclass
class Copies:
    """How the slices of an output differ from its first one. marked: bool, its elements; by_slice: bool, its slices."""

    marked: torch.Tensor
    by_slice: torch.Tensor
    largest: torch.Tensor

    @property
    def n(self) -> int:
        """How many slices are compared with the first one."""
        return self.by_slice.numel() - 1


def compare_copies(tensor: torch.Tensor, axes: tuple[int, ...]) -> Copies:
    """A tensor whose slices along `axes` should be equal. Nothing waits for its device."""
    words = tensor.view(INTEGERS[tensor.element_size()])
    at_first = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(tensor.dim()))
    marked = words != words[at_first]
    off = (tensor - tensor[at_first]).abs().masked_fill(~marked, 0.0).nan_to_num(torch.inf, posinf=torch.inf)
    others = [axis for axis in range(tensor.dim()) if axis not in axes]
    by_slice = marked.any(others) if others else marked
    return Copies(marked, by_slice, off.max() if off.numel() else off.new_zeros(()))
