"""The rounding errors of a correct kernel, derived for one chunk of queries at a time.

A chunk goes through one stage for each intermediate result of a kernel:

    forward    score, out, lse      noise_forward.py
    backward   dP, delta, T         noise_backward.py

Each stage has the formula of its noise in the docstring of its file. What a kernel declares, and
what a variant of attention adds, are terms of a stage. The names are the same as in attention.py.
E_x is the noise of x, a variance or a bound. unit, steps, total and size are functions of the form
(algebra.py). Units (rounding.py) says what the declared precision rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .attention import Operands
from .noise_backward import DP, Delta, T, of_delta, of_dp, of_t
from .noise_forward import Chunk, Lse, Out, Scores, of_lse, of_out, of_scores
from .rounding import Units


@dataclass(frozen=True)
class Noise:
    """The noise of one chunk, by stage. dp, delta and t are None without dout.

    again (batch, nheads, i, j): the relative noise of P = exp(S - lse) in the backward, from S
    alone. lost (batch, nheads, i, j): the elements of P that sums may lose, all with the same
    sign; None if there are none.
    """

    scores: Scores
    out: Out
    lse: Lse
    again: torch.Tensor
    lost: torch.Tensor | None
    dp: DP | None = None
    delta: Delta | None = None
    t: T | None = None


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
    delta = of_delta(c, s, out, dp)
    return Noise(s, out, lse, again, lost, dp, delta, of_t(c, s, lse, dp, delta, again))
