"""The noise of sums over rows: of dk, dv, dbias and dsink.

A sum collects, chunk by chunk, the noise of its terms and their sizes. Then `total` adds the errors
of adding the terms up. Errors with the same sign in many rows are added up with their sign before
their size is taken (budget.py has the formulas).
"""

from __future__ import annotations

import torch

from .attention import Operands, sum_broadcast
from .rounding import FLOAT32, Units


class SumOfProducts:
    """scale * sum_i x_i factor_i (batch, nheads, j, headdim), with its noise: dk, or dv.

    noise, terms: without the scale. signed: errors that are added up with their sign, by name;
    "small" are terms that a sum may lose, each below 2^-24 of it. heads: the sum of each query
    head, which kernels may store before they sum a group, as FlashAttention-2 does; None if no
    heads share a key head.
    """

    def __init__(
        self, p: Operands, un: Units, form: type, like: torch.Tensor, factor: torch.Tensor, scale: float = 1.0
    ):
        self.p, self.un, self.form, self.like, self.factor, self.scale = p, un, form, like, factor, scale
        self.n_terms = factor.shape[2] * p.group
        self.noise, self.terms = torch.zeros_like(like), torch.zeros_like(like)
        self.heads = torch.zeros_like(like) if p.group > 1 else None
        self.signed: dict[str, torch.Tensor | float] = {}

    def add(
        self,
        rows: slice,
        noise: torch.Tensor,
        size: torch.Tensor,
        value: torch.Tensor,
        signed: dict[str, torch.Tensor | None],
    ) -> torch.Tensor:
        """Add rows of x, each argument (batch, nheads, i, j). Return what was added to `terms`."""
        factor = self.factor[:, :, rows]
        size_factor = self.form.size(factor)
        self.noise += noise.mT @ size_factor
        terms = size.mT @ size_factor
        self.terms += terms
        if self.heads is not None:
            self.heads += self.scale * (value.mT @ factor)
        for name, error in signed.items():
            into = self.signed.setdefault(name, 0.0)
            if error is not None:
                self.signed[name] = into + self.scale * (error.mT @ factor)
        return terms

    def total(self, want: torch.Tensor) -> torch.Tensor:
        """want (batch, j, nheads_k, headdim) -> the noise (batch, nheads_k, j, headdim)."""
        p, un, form = self.p, self.un, self.form
        size, want, noise = form.size, want.transpose(1, 2), self.noise
        if self.heads is not None:
            noise = noise + (size(self.heads) * form.unit(un.u_out) + form.unit(un.tiny_out))
        terms = p.sum_group(self.terms)
        noise = p.sum_group(noise) + form.total(self.n_terms, un.acc_in_backward, want, terms)
        noise = noise + size(want) * form.steps(4)
        signed = {name: p.sum_group(x) for name, x in self.signed.items() if isinstance(x, torch.Tensor)}
        small = signed.pop("small", None)
        if signed:
            noise += sum(map(size, signed.values()))
        if small is not None:
            most = self.n_terms * FLOAT32 * torch.maximum(want.abs(), terms.sqrt())
            noise += size(torch.minimum(small.abs(), most))
        return noise + size(want) * (form.truncation(self.n_terms) if un.matrix else 0.0)


class BroadcastSum:
    """A sum of x (batch, nheads, i, j) over the dimensions along which `like` is broadcast, with
    its noise: dbias, or dsink, where j has one element.
    """

    def __init__(self, like: torch.Tensor, un: Units, form: type):
        self.like, self.un, self.form = like, un, form
        self.noise, self.terms = self._zeros(), self._zeros()
        self.signed: dict[str, torch.Tensor] = {}

    def add(self, rows: slice, noise: torch.Tensor, size: torch.Tensor, signed: dict[str, torch.Tensor | None]) -> None:
        """Add rows of x, each argument (batch, nheads, i, j)."""
        rows = rows if self.like.shape[2] > 1 else slice(None)
        self.noise[:, :, rows] += sum_broadcast(noise, self.like)
        self.terms[:, :, rows] += sum_broadcast(size, self.like)
        for name, error in signed.items():
            if name not in self.signed:
                self.signed[name] = self._zeros()
            if error is not None:
                self.signed[name][:, :, rows] += sum_broadcast(error, self.like)

    def total(self, want: torch.Tensor, rows: int, steps: float) -> torch.Tensor:
        """Return the noise in the shape of `want`. rows: batch * nheads * seqlen_q.

        steps: the noise of some last operations on the sum.
        """
        noise, broadcast = self.noise, rows // max(1, self.like.shape[:3].numel())
        if broadcast > 1:
            noise = noise + self.form.total(broadcast, self.un.acc_in_backward, want, self.terms)
        return noise + sum(map(self.form.size, self.signed.values()), self.form.size(want) * steps)

    def _zeros(self) -> torch.Tensor:
        return torch.zeros_like(self.like, dtype=torch.float64)
