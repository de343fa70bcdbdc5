"""Race detection by copies: compares slices of one launch that should be equal.

Blocks that get the same numbers must give the same bits, whatever runs beside them. Slices of one
launch run on different SMs and at different times, as repeats do, so a single launch gives many
comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flash_attest.races.bits import INTEGERS


@dataclass
class Copies:
    """The differences of an output's slices from its first slice.

    marked: bool, the elements that differ. by_slice: bool, the slices that differ.
    """

    marked: torch.Tensor
    by_slice: torch.Tensor
    largest: torch.Tensor

    @property
    def n(self) -> int:
        """The number of slices that are compared with the first one."""
        return self.by_slice.numel() - 1


def compare_copies(tensor: torch.Tensor, axes: tuple[int, ...]) -> Copies:
    """Compare the slices of a tensor along `axes`, which should be equal, without waiting."""
    words = tensor.view(INTEGERS[tensor.element_size()])
    at_first = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(tensor.dim()))
    marked = words != words[at_first]
    off = (tensor - tensor[at_first]).abs().masked_fill(~marked, 0.0).nan_to_num(torch.inf, posinf=torch.inf)
    others = [axis for axis in range(tensor.dim()) if axis not in axes]
    by_slice = marked.any(others) if others else marked
    return Copies(marked, by_slice, off.max() if off.numel() else off.new_zeros(()))
