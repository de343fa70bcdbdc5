"""Compares the results of repeated calls with those of the first call bit for bit, on their device.

The differences are read back once, at the end. On a GPU one kernel reads all outputs of a call
(compare_kernel.py). It writes only where they differ, and nothing waits for it. Without Triton, and
on a CPU, torch does the same in more passes.
"""

from __future__ import annotations

import importlib.util
import math

import torch

from flash_attest.emulator.triton import interpreted
from flash_attest.races.bits import bits


class Dense:
    """A tensor without gaps in memory, in any order of dimensions, as one row of elements."""

    def __init__(self, tensor: torch.Tensor):
        self.order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
        self.elements, self.strides = tensor.numel(), tensor.stride()
        self.gapless = tensor.permute(self.order).is_contiguous()

    def stored(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, or a copy if its strides differ from those of the first result."""
        if self.gapless and tensor.stride() == self.strides:
            return tensor
        return tensor.permute(self.order).contiguous()

    def like(self, row: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """Return a row of elements, reshaped like a tensor."""
        axes = [self.order.index(axis) for axis in range(tensor.dim())]
        return row.view([tensor.shape[axis] for axis in self.order]).permute(axes)


class Comparison:
    """The first results of a call and the differences of n repeats.

    Tensors stay on their device.
    """

    def __init__(self, first: dict[str, torch.Tensor], n: int):
        self.n, self.first = n, {name: tensor.clone() for name, tensor in first.items()}
        self.dense = {name: Dense(tensor) for name, tensor in first.items()}
        self.rows = {name: as_row(self.dense[name].stored(tensor)) for name, tensor in self.first.items()}
        device = next((tensor.device for tensor in first.values()), torch.device("cpu"))
        # counts: in how many repeats each element differed. differed: whether each output differed
        # in each repeat. most: the largest difference of each output.
        self.counts = {name: torch.zeros_like(row, dtype=torch.int32) for name, row in self.rows.items()}
        self.differed = torch.zeros((len(first), n), dtype=torch.int32, device=device)
        self.most = torch.zeros(len(first), dtype=torch.float32, device=device)
        self._compare = _way(device)([*self.rows.values()], [*self.counts.values()], self.differed, self.most)

    def see(self, repeat: int, results: dict[str, torch.Tensor]) -> None:
        """Compare the results of a repeat, without waiting for them."""
        self._compare([dense.stored(results[name]) for name, dense in self.dense.items()], repeat)

    def which(self) -> dict[str, list[int]]:
        """Return, for each output that differed, the repeats in which it differed.

        This waits for the device.
        """
        differed = self.differed.tolist()
        repeats = {name: [r for r, it in enumerate(row) if it] for name, row in zip(self.first, differed, strict=True)}
        return {name: which for name, which in repeats.items() if which}

    def elements(self, name: str) -> torch.Tensor:
        """Return an output-shaped tensor: the number of repeats in which each element differed."""
        return self.dense[name].like(self.counts[name], self.first[name])

    def largest(self, name: str) -> float:
        """Return the largest difference of an output; inf if a NaN appeared or disappeared."""
        return float(self.most[list(self.first).index(name)])


def as_row(stored: torch.Tensor) -> torch.Tensor:
    """Return the elements of a tensor without gaps, in the order of memory."""
    return stored.as_strided((stored.numel(),), (1,))


def _way(device: torch.device) -> type:
    """Return the class that compares on a device.

    Triton is used only if it compiles: its interpreter would take seconds for each comparison.
    """
    if device.type != "cuda" or importlib.util.find_spec("triton") is None or interpreted():
        return ByTorch
    from flash_attest.races.compare_kernel import ByKernel  # importing Triton takes a second

    return ByKernel


class ByTorch:
    """Compares each output's row of elements, and updates counts, differed[:, repeat] and most."""

    def __init__(
        self, first: list[torch.Tensor], counts: list[torch.Tensor], differed: torch.Tensor, most: torch.Tensor
    ):
        self.first, self.counts, self.differed, self.most = first, counts, differed, most

    def __call__(self, got: list[torch.Tensor], repeat: int) -> None:
        """Compare the results of a repeat with the first results."""
        for n, (a, b) in enumerate(zip(map(as_row, got), self.first, strict=True)):
            differs = bits(a) != bits(b)
            any_ = differs.any()
            if a.device.type == "cpu" and not any_:  # not on a GPU, where the host would wait for the answer
                continue
            off = (a.double() - b.double()).abs().masked_fill(~differs, 0.0).nan_to_num(math.inf)
            self.counts[n] += differs
            self.differed[n, repeat] = any_
            if off.numel():
                self.most[n] = torch.maximum(self.most[n], off.max().float())
