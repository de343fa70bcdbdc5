"""Are inputs random enough that roundings are independent? The budget asks where inputs are not of a known regime.

The independent form of the budget takes the roundings of P, the softmax weights, for independent of each other. They are not
where equal weights are rounded again and again in one sum: all by the same amount to the same side, so that n such errors add
to n times one. Two patterns make that happen, along the keys of a row (out, dq) or along the queries of a column (dk, dv):

    ties     scores coincide: constant, quantised or repeated inputs
    flat     all weights lie within some roundings of each other, as where scores are small against 1
"""

from __future__ import annotations

import torch

from .attention import operands, softmax
from .rounding import roundoff
from .variant import Variant

TIES = 0.25  # of the neighbours in a sorted row; below, the tied errors stay under those of the rest
ROUNDINGS = 64  # spread of the weights, in units of their roundoff, below which they are rounded alike
FEWEST = 8  # terms; of fewer even the worst case lies within z = 8 of the independent form


def roundings_repeat(q: torch.Tensor, k: torch.Tensor, variant: Variant, dtype: torch.dtype, precision: object) -> bool:
    """q (batch, seqlen_q, nheads, headdim), k (batch, seqlen_k, nheads_k, headdim) -> whether the linear form is needed.

    dtype: to which P is cast before it is multiplied, unless `precision.probabilities` keeps it in float32.
    """
    u = roundoff(dtype if precision.probabilities == "operand" else torch.float32)
    p = operands(q, k, k, variant)
    for chunk in p.chunks():
        weights, *_ = softmax(p.mask(p.products(chunk), chunk))
        if _alike(weights, u) or _alike(weights.mT, u):
            return True
    return False


def _alike(weights: torch.Tensor, u: float) -> bool:
    """weights (..., n), 0 where hidden -> whether those of any row are rounded alike."""
    ordered = weights.sort(-1).values
    seen = ordered > 0
    terms = seen.sum(-1)
    neighbours = seen[..., 1:] & seen[..., :-1]
    ties = (neighbours & (ordered[..., 1:] == ordered[..., :-1])).sum(-1) / neighbours.sum(-1).clamp(min=1)
    mean = weights.sum(-1) / terms.clamp(min=1)
    spread = torch.where(weights > 0, (weights - mean[..., None]).square(), 0.0).sum(-1) / terms.clamp(min=1)
    flat = spread.sqrt() < ROUNDINGS * u * mean
    return bool(((terms >= FEWEST) & ((ties > TIES) | flat)).any())
