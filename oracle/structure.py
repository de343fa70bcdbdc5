"""Decides whether inputs are random enough that roundings are independent.

The suite asks this for inputs that are not from a known regime. The independent form of the budget
assumes that the roundings of P, the softmax weights, are independent of each other. They are not if
many weights in a sum are equal: all are rounded by the same amount to the same side, so n such
errors add up to n times one. This happens along the keys of a row (out, dq) or along the queries of
a column (dk, dv), in two patterns:

    ties     scores coincide, as with constant, quantised or repeated inputs
    flat     all weights lie within some roundings of each other, as with scores far below 1
"""

from __future__ import annotations

import torch

from .attention import operands, softmax
from .rounding import roundoff
from .variant import Variant

# The share of equal neighbours in a sorted row. Below this share, the errors of ties are smaller
# than the errors of the other weights.
TIES = 0.25
# Weights are rounded alike if their spread, in units of their roundoff, is below this.
ROUNDINGS = 64
# With fewer terms, even the worst case lies within z = 8 of the independent form.
FEWEST = 8


def roundings_repeat(q: torch.Tensor, k: torch.Tensor, variant: Variant, dtype: torch.dtype, precision: object) -> bool:
    """Return whether these inputs need the linear form.

    q (batch, seqlen_q, nheads, headdim), k (batch, seqlen_k, nheads_k, headdim). dtype: P is cast
    to it before it is multiplied, unless `precision.probabilities` keeps it in float32.
    """
    u = roundoff(dtype if precision.probabilities == "operand" else torch.float32)
    p = operands(q, k, k, variant)
    for chunk in p.chunks():
        weights, *_ = softmax(p.mask(p.products(chunk), chunk), p.sinks)
        if _alike(weights, u) or _alike(weights.mT, u):
            return True
    return False


def _alike(weights: torch.Tensor, u: float) -> bool:
    """weights (..., n), 0 where hidden -> whether the weights of any row are rounded alike."""
    ordered = weights.sort(-1).values
    seen = ordered > 0
    terms = seen.sum(-1)
    neighbours = seen[..., 1:] & seen[..., :-1]
    ties = (neighbours & (ordered[..., 1:] == ordered[..., :-1])).sum(-1) / neighbours.sum(-1).clamp(min=1)
    mean = weights.sum(-1) / terms.clamp(min=1)
    spread = torch.where(weights > 0, (weights - mean[..., None]).square(), 0.0).sum(-1) / terms.clamp(min=1)
    flat = spread.sqrt() < ROUNDINGS * u * mean
    return bool(((terms >= FEWEST) & ((ties > TIES) | flat)).any())
