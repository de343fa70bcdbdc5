"""The noise that a softcap c adds, with t = tanh(R / c), and f = 1 - t^2, the slope of c t.

    score   E_s   = size(f) E_R + size(R f) steps(2) + size(c) steps(1) + size(c t) unit(tanh)
            E_R is the noise of R, with the terms of scaled and quantised q and k. Then come R / c,
            an absolute error of tanh (1 - 2 / (1 + e^2x) loses digits near 0), and a declared
            relative error of tanh. The other terms of E_s follow, as without a softcap.
    U       U = T f, the gradient of R
            E_U   = size(f) E_T + size(T) E_f + unit(tiny_p / min(1, |scale|))
            E_f   = size(2 t f / c) E_R + size(2 t) steps(4) + steps(2) + size(2 t^2) unit(tanh)
            U is cast after it is multiplied by f, so it may be subnormal where T is not. The errors
            of lse and delta, which a row shares, move U by U and by P f.

If scores are rounded to a half dtype, so are R / c, t and c t, and in the backward t and three
products. If E_R is so large that c t is not linear in it (declared.py), the second order is added:

    E_s += 0.77 / c E_R^2, at most 2 c          E_f += (E_R / c)^2, at most 1
    E_U += E_f (E_T + P E_delta + |T| E_lse)

as the second derivatives of c t and of f are at most 0.77 / c and 2 / c^2. (Half of 0.77 / c would
do for a single E_R, but it has two parts.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .rounding import Units

CURVATURE = 0.77  # the largest |d^2/dx^2 tanh x|, 4 / (3 root 3)


@dataclass(frozen=True)
class Capped:
    """Intermediates of a softcap for the backward: matrices (batch, nheads, i, j).

    value = c t. slope = f. scaled: the part of E_s in the backward from scaled or quantised q and
    k; None if they are neither. e_slope: E_f.
    """

    value: torch.Tensor
    slope: torch.Tensor
    scaled: torch.Tensor | None
    e_slope: torch.Tensor


def capped_scores(
    cap: float,
    r: torch.Tensor,
    e_r: torch.Tensor,
    of_forward: torch.Tensor | None,
    scaled: torch.Tensor | None,
    form: type,
    un: Units,
) -> tuple[Capped, torch.Tensor, torch.Tensor | None]:
    """Return what the softcap makes of R and of its noise: Capped, E_s, and of_forward.

    e_r: the noise of R. of_forward, scaled: its part from scaled or quantised q and k, in the
    forward and in the backward. Each is a matrix (batch, nheads, i, j).
    """
    size, unit = form.size, form.unit
    t = torch.tanh(r / cap)
    slope = 1 - t * t
    size_slope = size(slope)
    if un.narrow_scores:  # the product, and its product with the scale
        form.add(e_r, r, 2 * unit(un.u))

    def moved(noise: torch.Tensor) -> torch.Tensor:
        first = noise * size_slope
        return (first + noise.square() * (CURVATURE / cap)).clamp(max=2 * cap) if un.coarse else first

    e_s = moved(e_r)
    form.add(e_s, r * slope, form.steps(2))
    form.add(e_s, t, size(cap) * unit(un.tanh))
    e_s += size(cap) * form.steps(1)
    if un.narrow_scores:
        form.add(e_s, r * slope, unit(un.u))
        form.add(e_s, t, 2 * size(cap) * unit(un.u))
        e_s += (2 * size(cap) + 1) * unit(un.tiny)

    in_backward = e_r if scaled is None else e_r + scaled
    e_slope = size(t * slope * (2 / cap)) * in_backward
    form.add(e_slope, 2 * t, form.steps(4))
    form.add(e_slope, 2 * t * t, unit(un.tanh))
    e_slope += form.steps(2)
    if un.narrow_scores:
        form.add(e_slope, 2 * t * t, unit(un.u))
        form.add(e_slope, slope, 3 * unit(un.u))
    if un.coarse:
        e_slope = (e_slope + (in_backward / cap).square()).clamp(max=1.0)
    of_backward = None if scaled is None else moved(scaled)
    if of_forward is not None:
        of_forward = of_backward if of_forward is scaled else moved(of_forward)
    return Capped(t.mul_(cap), slope, of_backward, e_slope), e_s, of_forward
