"""The two algebras of noise: variances of independent roundings, and bounds of the worst case.

In the independent form, noise is a variance. A rounding of x to nearest adds x^2 u^2 / 3, as its
relative error is uniform in [-u, u]. In the linear form, noise is a bound on |error|, and a
rounding adds |x| u. In both forms the noise of y = a x is size(a) times the noise of x, with
size(a) = a^2 or |a|, and noises add up, so one derivation serves both. budget.py says when each
form applies.
"""

from __future__ import annotations

import torch

from .limits import Z_WORST
from .rounding import FLOAT32, TRUNCATION, Accumulator

SMALLEST_STEP = 2.0**-100  # below it is the step of float32 and bfloat16, above it float16's


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
        """Return the noise of one rounding to nearest, relative to size(x)."""
        return u * u / 3

    @staticmethod
    def steps(n: float) -> float:
        """Return the noise of a few float32 operations, with a joint deviation of sqrt(n) u."""
        return n * FLOAT32**2

    @staticmethod
    def larger(result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """Return the size of a partial sum of terms: the larger of the result and a random walk."""
        return torch.maximum(result * result, terms)

    @staticmethod
    def total(n: float, acc: Accumulator, result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """Return the noise of adding n terms, which rounds n partial sums.

        The partial sums grow to the result, or like a random walk of the terms.
        """
        larger = result * result
        torch.maximum(larger, terms, out=larger)
        return larger.mul_(n * acc.u**2 / 3).add_(n * acc.tiny**2 / 3)

    @staticmethod
    def truncation(n: float) -> float:
        """Return the error by which a matrix unit truncates n products, relative to size(x).

        It is a bias to one side, not a variance.
        """
        return (n * TRUNCATION * FLOAT32) ** 2

    @staticmethod
    def lost(probs: torch.Tensor, below: torch.Tensor | float = FLOAT32) -> torch.Tensor | None:
        """Return P where a sum may lose it entirely, and 0 elsewhere; None if nothing is lost.

        These errors all have the same sign.
        """
        small = probs.masked_fill(probs >= below, 0.0)
        # Asking a GPU whether any element is lost takes longer than computing with zeros.
        return small if small.is_cuda or small.any() else None

    @staticmethod
    def flushed(x: torch.Tensor, tiny: float) -> torch.Tensor | None:
        """Return the errors of casting elements of x below the step `tiny`; None if there are none.

        Most become 0, so these errors have the sign of x. With the range of float32, `tiny` itself
        counts them (Units).
        """
        if tiny < SMALLEST_STEP:
            return None
        small = x.clamp(-tiny / 2, tiny / 2).masked_fill_(x.abs() >= tiny, 0.0)
        return small if small.is_cuda or small.any() else None

    @staticmethod
    def sigma(noise: torch.Tensor) -> torch.Tensor:
        return noise.sqrt()


class Linear:
    """Roundings add up in the worst case: noise is a bound on the absolute error.

    At z = Z_WORST the bound is reached, and correct kernels reach it. With one query, dv_j = P_j
    dout is one product, and a P_j just above a power of two has a rounding error of nearly u_p. So
    z = 6 does not mean that the budget lacks a term. The reserve up to Z_LIMIT covers what a
    first-order bound leaves out: products of two roundings, below 2 %, and errors of the machine's
    own functions.
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
        """Return four deviations of the independent form, as the worst case of these operations."""
        return 4 * n**0.5 * FLOAT32

    @staticmethod
    def larger(result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """Return a bound on the size of a partial sum of terms: the sum of all sizes."""
        return terms

    @staticmethod
    def total(n: float, acc: Accumulator, result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """Return the noise of adding n terms in any order: |error| <= n u sum |term|."""
        return (terms * (n * acc.u)).add_(n * acc.tiny)

    @staticmethod
    def truncation(n: float) -> float:
        """Return 0, as `total` already counts n u of every term."""
        return 0.0

    @staticmethod
    def lost(probs: torch.Tensor, below: torch.Tensor | float = FLOAT32) -> None:
        """Return None, as `total` already counts n u of every term."""
        return None

    @staticmethod
    def flushed(x: torch.Tensor, tiny: float) -> None:
        """Return None, as unit(tiny) of every term is already counted."""
        return None

    @staticmethod
    def sigma(noise: torch.Tensor) -> torch.Tensor:
        return noise / Z_WORST


FORMS = {"independent": Independent, "linear": Linear}
