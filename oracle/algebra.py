"""How noise adds up: as variances of independent roundings, or as bounds of roundings that may all be alike.

In the independent form noise is a variance, and a rounding of x to nearest has x^2 u^2 / 3, as its relative error is uniform
in [-u, u]; in the linear form it is a bound on |error|, and a rounding has |x| u. Either way noise passes through y = a x as
size(a) times the noise of x with size(a) = a^2 or |a|, and noises add, so that one derivation serves both. budget.py says
when to use which.
"""

from __future__ import annotations

import torch

from .limits import Z_WORST
from .rounding import FLOAT32, TRUNCATION, Accumulator


class Independent:
    """Roundings are independent: noise is a variance."""

    linear = False

    @staticmethod
    def size(x):
        return x * x

    @staticmethod
    def add(noise: torch.Tensor, x: torch.Tensor, factor: float) -> None:
        """noise += factor * size(x), in place."""
        noise.addcmul_(x, x, value=factor)

    @staticmethod
    def unit(u: float) -> float:
        """One rounding to nearest, relative to size(x)."""
        return u * u / 3

    @staticmethod
    def steps(n: float) -> float:
        """A few float32 operations, with a joint deviation of sqrt(n) u."""
        return n * FLOAT32**2

    @staticmethod
    def larger(result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """The size of a partial sum of terms: that of the result, or of a random walk."""
        return torch.maximum(result * result, terms)

    @staticmethod
    def total(n: float, acc: Accumulator, result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """Adding n terms: n roundings of partial sums, which grow to the result or like a random walk of the terms."""
        larger = result * result
        torch.maximum(larger, terms, out=larger)
        return larger.mul_(n * acc.u**2 / 3).add_(n * acc.tiny**2 / 3)

    @staticmethod
    def truncation(n: float) -> float:
        """What a matrix unit loses over n products by truncating, relative to size(x): a bias to one side, not a variance."""
        return (n * TRUNCATION * FLOAT32) ** 2

    @staticmethod
    def lost(probs: torch.Tensor, below: torch.Tensor | float = FLOAT32) -> torch.Tensor | None:
        """The P that a sum may lose entirely, and so to one side, else 0; None if there are none."""
        small = probs.masked_fill(probs >= below, 0.0)
        # Asking a GPU whether there are any takes longer than to carry them along.
        return small if small.is_cuda or small.any() else None

    @staticmethod
    def sigma(noise: torch.Tensor) -> torch.Tensor:
        return noise.sqrt()


class Linear:
    """Roundings add up at their worst: noise is a bound on the absolute error, and z = Z_WORST says that it is reached.

    Correct kernels reach it. With one query, dv_j = P_j dout is one product, and P_j just above a power of two rounds by
    nearly u_p: z of 6 is no sign of a missing term. The reserve up to Z_LIMIT covers what first order leaves out: products of
    two roundings, below 2 %, and what a machine adds.
    """

    linear = True

    @staticmethod
    def size(x):
        return abs(x)

    @staticmethod
    def add(noise: torch.Tensor, x: torch.Tensor, factor: float) -> None:
        """noise += factor * size(x), in place."""
        noise.add_(x.abs(), alpha=factor)

    @staticmethod
    def unit(u: float) -> float:
        return u

    @staticmethod
    def steps(n: float) -> float:
        """Four deviations of what the independent form allows: the same few operations at their worst."""
        return 4 * n**0.5 * FLOAT32

    @staticmethod
    def larger(result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """The size of a partial sum of terms: at most that of all of them."""
        return terms

    @staticmethod
    def total(n: float, acc: Accumulator, result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """Adding n terms in any order: |error| <= n u sum |term|."""
        return (terms * (n * acc.u)).add_(n * acc.tiny)

    @staticmethod
    def truncation(n: float) -> float:
        """Nothing beyond `total`, which takes n u of every term."""
        return 0.0

    @staticmethod
    def lost(probs: torch.Tensor, below: torch.Tensor | float = FLOAT32) -> None:
        """Nothing beyond `total`, either."""
        return None

    @staticmethod
    def sigma(noise: torch.Tensor) -> torch.Tensor:
        return noise / Z_WORST


FORMS = {"independent": Independent, "linear": Linear}
