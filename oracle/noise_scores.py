"""The noise of scores, the first stage of the budget.

    score   E_s   = 2 unit(u_mul) qk + total_headdim + truncated_headdim
                    + (size(S) + size(m - S)) steps(1) + steps(4)

The terms: the products, their sum, scaling and adding the bias, subtracting m, and exp. The
absolute error of exp's argument is a relative error of P. With a bias there is also size(scale q k)
steps(1), as the bias may cancel the product. softcap.py, sinks.py and declared.py derive what a
softcap, sinks and the declared precision change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from . import declared
from .attention import Operands, softmax
from .rounding import HEADDIM_SUM, Units
from .sinks import SinkScores, sink_scores
from .softcap import Capped, capped_scores


@dataclass(frozen=True)
class Chunk:
    """Some rows of queries, the form of the budget, and what the declared precision rounds."""

    p: Operands
    rows: slice
    form: type
    un: Units

    @property
    def headdim(self) -> int:
        return self.p.k.shape[3]

    @property
    def headdim_v(self) -> int:
        return self.p.v.shape[3]

    @property
    def seqlen_k(self) -> int:
        return self.p.k.shape[2]

    @cached_property
    def size_v(self) -> torch.Tensor:
        return self.form.size(self.p.v)

    @cached_property
    def dout(self) -> torch.Tensor:
        return self.p.dout[:, :, self.rows]

    @cached_property
    def dlse(self) -> torch.Tensor | None:
        return None if self.p.dlse is None else self.p.dlse[:, :, self.rows]


@dataclass(frozen=True)
class Scores:
    """Scores and weights of one chunk, with their noise: matrices (batch, nheads, i, j), unless a
    shape is given.

    products = R. qk = sum_d size(scale q k), the sizes of their terms. seen: 1.0 where a key is
    seen; None if all are. lse (..., i, 1): its value, -inf in rows that `dead` marks.
    noise: E_s in the forward, a relative noise of P. again: the same in the backward, which
    computes P = exp(S - lse) without a running maximum, and perhaps from other q and k; lse adds
    its own noise. scaled: the part of `again` from scaled or quantised q and k; None if they are
    neither.
    cast: the noise of casting P, if `noise` does not have it.
    of_rows: the noise of rows from declared.py. growth: what replaces E_s where errors of exponents
    are large; None elsewhere. grown: exp(D) - 1 in the backward.
    cap: what the backward needs of a softcap. sink: the sink's weight. None without them.
    """

    products: torch.Tensor
    probs: torch.Tensor
    size_p: torch.Tensor
    qk: torch.Tensor
    seen: torch.Tensor | None
    lse: torch.Tensor
    dead: torch.Tensor
    noise: torch.Tensor
    again: torch.Tensor
    scaled: torch.Tensor | None
    cast: float
    of_rows: declared.Rows
    growth: declared.Growth | None
    grown: torch.Tensor | None
    cap: Capped | None
    sink: SinkScores | None

    @property
    def finite_lse(self) -> torch.Tensor:
        return self.lse.masked_fill(self.dead, 0.0)


def of_scores(c: Chunk) -> Scores:
    """Return the scores and weights of a chunk, with E_s."""
    p, form, un = c.p, c.form, c.un
    size, unit = form.size, form.unit
    r = p.products(c.rows)
    s = p.mask(r, c.rows)
    probs, m, lse = softmax(s, p.sinks)
    rises = declared.of_maximum(s, p.sinks, un) if un.narrow else declared.NO_RISES
    sink = None if p.sinks is None else sink_scores(s, probs, m, lse, p.sinks, rises.sink, form, un)
    qk = size(p.scale * p.q[:, :, c.rows]) @ size(p.k).mT
    e_s = form.total(c.headdim, HEADDIM_SUM, r, qk)
    if un.matrix:
        form.add(e_s, r, form.truncation(c.headdim))
    if un.u_mul:
        e_s.add_(qk, alpha=2 * unit(un.u_mul))
    # The backward computes P again, perhaps from other q and k.
    of_forward = scaled = declared.of_scores(p, c.rows, form, un, qk, un.scaled)
    if un.scaled != un.scaled_in_backward:
        scaled = declared.of_scores(p, c.rows, form, un, qk, un.scaled_in_backward)
    cap, added_to = None, r  # the bias is added to R, or to the capped R
    if p.variant.softcap is not None:
        cap, e_s, of_forward = capped_scores(p.variant.softcap, r, e_s, of_forward, scaled, form, un)
        added_to = cap.value
    seen = None
    if p.masked:
        hidden = s == float("-inf")
        seen = (~hidden).double()
        s = s.masked_fill(hidden, 0.0)
        gap = (m - s).masked_fill_(hidden, 0.0)
    else:
        gap = m - s
    if p.variant.bias is not None:
        form.add(e_s, added_to, form.steps(1))
    form.add(e_s, s, form.steps(1))
    form.add(e_s, gap, form.steps(1))
    if un.narrow_scores:
        if cap is None:
            form.add(e_s, r, 2 * unit(un.u))
        form.add(e_s, s, unit(un.u))
        e_s += (1 + size(p.scale)) * unit(un.tiny)
    e_s.add_(form.steps(4))
    del s, gap, added_to
    if un.exp:
        e_s += unit(un.exp)
    dead = lse == float("-inf")
    rows = declared.of_rows(lse.masked_fill(dead, 0.0), m, c.seqlen_k, sink, form, un)
    in_backward = scaled if cap is None else cap.scaled
    again = summed(e_s, in_backward)
    e_s = again if of_forward is in_backward else summed(e_s, of_forward)
    cast = unit(un.u_p)
    if un.cast_sum:  # l has this error, too, so it is one of P
        e_s, cast = e_s + cast, 0.0
    if rises.keys is not None:
        e_s = e_s + rises.keys
    if un.narrow and un.merged:
        e_s = e_s + rows.e_s
    growth = grown = None
    if un.coarse:
        growth = declared.of_exponent(e_s, probs, sink)
        grown = growth.grown if e_s is again else declared.grown(again)
        e_s = growth.e_s
    return Scores(
        products=r,
        probs=probs,
        size_p=size(probs),
        qk=qk,
        seen=seen,
        lse=lse,
        dead=dead,
        noise=e_s,
        again=again,
        scaled=scaled,
        cast=cast,
        of_rows=rows,
        growth=growth,
        grown=grown,
        cap=cap,
        sink=sink,
    )


def summed(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    """Return a + b, where None means 0; None if both are None."""
    return b if a is None else a if b is None else a + b
