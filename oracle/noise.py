"""The rounding errors of a correct kernel, derived for one chunk of queries at a time.

A chunk goes through one stage for each intermediate result of a kernel:

    scores         noise_scores.py
    out, lse       noise_out.py
    dP, delta, T   noise_backward.py, with U, the gradient of R

Each stage has the formula of its noise in the docstring of its file. What a kernel declares
(declared.py), and what a variant of attention adds (softcap.py, sinks.py), are terms of a stage.
The names are the same as in attention.py. E_x is the noise of x, a variance or a bound. unit,
steps, total and size are functions of the form (algebra.py). Units (rounding.py) says what the
declared precision rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .attention import Operands
from .noise_backward import DP, Delta, T, of_delta, of_dp, of_t, of_u, smallest
from .noise_out import Lse, Out, of_lse, of_out
from .noise_scores import Chunk, Scores, of_scores
from .rounding import Units


@dataclass(frozen=True)
class Noise:
    """The noise of one chunk, by stage. dp, delta, u and t are None without dout.

    t is None without a bias, too, if there is a softcap: then only the bias needs T beside U.

    again (batch, nheads, i, j): the relative noise of P = exp(S - lse) in the backward, from S
    alone. lost (batch, nheads, i, j): the elements of P that sums may lose, all with the same sign;
    None if there are none. flushed (batch, nheads, i, j): the errors of U that a cast flushes, next
    to a sink; None if there are none.
    """

    scores: Scores
    out: Out
    lse: Lse
    again: torch.Tensor
    lost: torch.Tensor | None
    dp: DP | None = None
    delta: Delta | None = None
    u: T | None = None
    t: T | None = None
    flushed: torch.Tensor | None = None

    def with_shared(self, t: T) -> torch.Tensor:
        """Return the noise of T or U with the errors that a row shares, those of lse and delta."""
        return torch.addcmul(t.noise, t.size_of_delta, self.delta.noise).addcmul_(t.size, self.lse.norm)

    def signed(self, t: T) -> dict[str, torch.Tensor | None]:
        """Return the errors of T or U that are added up over rows with their sign, None for 0."""
        return {
            "lost": None if self.delta.lost is None else t.of_delta * self.delta.lost,
            "cut": t.cut,
            "shared": None if self.lse.shared is None else t.value * self.lse.shared,
        }

    def signed_dsink(self) -> dict[str, torch.Tensor | None]:
        """Return the same of P_sink delta (batch, nheads, i, 1), with the error of the sink."""
        weight, delta, lse = self.scores.sink.weight, self.delta, self.lse
        of_sink = self.scores.sink.shared
        return {
            "lost": None if delta.lost is None else weight * delta.lost,
            "cut": None if delta.cut is None else weight * delta.cut,
            "shared": None if lse.shared is None else weight * delta.value * lse.shared,
            "sink": None if of_sink is None else weight * delta.value * of_sink,
        }


def noise(p: Operands, chunk: slice, form: type, un: Units, wants_out: bool = True) -> Noise:
    """Return the Noise of the rows in chunk. wants_out: whether E_out is wanted."""
    c = Chunk(p, chunk, form, un)
    s = of_scores(c)
    lost = form.lost(s.probs)
    out = of_out(c, s, lost, wants_out)
    lse = of_lse(c, s, out.moved, lost)
    again = s.again if s.grown is None else s.grown * (1.0 + lse.norm)
    if p.dout is None:
        return Noise(s, out, lse, again, lost)
    dp = of_dp(c, s)
    delta = of_delta(c, s, out, lse, dp)
    t = of_t(c, s, lse, dp, delta, again)
    u = of_u(c, s, lse, delta, t)
    flushed = None if s.sink is None else form.flushed(u.value, smallest(c))
    kept = t if u is t or p.variant.bias is not None else None
    return Noise(s, out, lse, again, lost, dp, delta, u, kept, flushed)
