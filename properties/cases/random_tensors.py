"""Random tensors of a case, independent of earlier draws."""

from __future__ import annotations

import zlib

import torch

from flash_attest.properties.cases.case import Case


class RandomTensors:
    """Random float32 tensors on one device, from a case's seed and a word.

    Draws of a case with different words are independent.
    """

    def __init__(self, case: Case, device: str | torch.device, word: str = ""):
        self.device = device
        self.generator = torch.Generator(device)
        self.generator.manual_seed(case.seed * 1_000_003 + zlib.crc32(word.encode()))

    def normal(self, shape: tuple[int, ...], spread: float = 1.0) -> torch.Tensor:
        drawn = torch.randn(shape, generator=self.generator, device=self.device)
        return drawn if spread == 1.0 else drawn.mul_(spread)

    def uniform(self, shape: tuple[int, ...], low: float, high: float) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device).mul_(high - low).add_(low)

    def integers(self, shape: tuple[int, ...], low: int, high: int) -> torch.Tensor:
        """Return whole numbers low .. high, as float32."""
        return torch.randint(low, high + 1, shape, generator=self.generator, device=self.device).float()

    def order(self, n: int) -> torch.Tensor:
        """Return a permutation of 0 .. n - 1."""
        return torch.randperm(n, generator=self.generator, device=self.device)

    def number(self, low: int, high: int) -> int:
        """Return one whole number, low .. high."""
        return int(self.integers((1,), low, high))
