"""The noise that sinks add. A sink is one more key of a row, whose v is 0.

    E_sink  = size(sink) steps(1) + size(m - sink) steps(1) + steps(4)
              The relative noise of the sink's weight. A kernel multiplies the sink by log2 e,
              subtracts m, and takes exp.
    E_keys  = size(max(0, sink - max_j S)) steps(1) + steps(2)
              The relative noise of all keys together. m may leave the sink out until all keys are
              summed; then they are multiplied by exp(m - max(m, sink)).
    out     E_out   += size(P_sink out) (E_sink + E_keys), as the weight of the sink goes to v = 0
    lse     E_lse   += size(P_sink) E_sink + size(1 - P_sink) E_keys
    delta   E_delta += size(P_sink sum_d dout out) (E_sink + E_keys)
    dsink   sum_i size(P_sink) [size(delta) (E_again + E_lse + steps(4)) + E_delta]
            + size(delta) unit(2^-24) + total_(batch seqlen_q) + size(dsink) steps(4)
            E_again, the noise of exp(sink - lse), has lse in place of m. P_sink may also be 1 less
            the weight of all keys, which is a sigmoid, and has the rounding of a number next to 1.

The product sink log2 e is rounded once for all rows of a head. So in the independent form this
error, 2^-24 sink, is also added up over rows with its sign: P_sink times it is an error of lse
(`shared` in noise_out.py), and P_sink sum_d dout out times it is one of delta.

Terms are lost (noise_out.py) in sums of keys alone, but in l also next to the sink: in out,
L = P where P < 2^-24 sum_j P.

Next to a large sink all P of a row may be so small that a cast to float16 flushes them, and then U,
too. Such errors have the sign of P, or of U, so in the independent form they are also added up with
their sign: F = min(|x|, tiny/2) sign(x) where |x| < tiny, 0 elsewhere, with x = P in out and delta,
as a part of L, and x = U in dq and dk.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .attention import sink_weight
from .declared import grown
from .rounding import FLOAT32, Units


@dataclass(frozen=True)
class SinkScores:
    """The weight of the sink and its noise, each (batch, nheads, i, 1).

    weight = P_sink. keys = sum_j P. e_sink, e_keys: as above, 0 where a head has no sink. again:
    E_again. lse_of_keys: 0 in rows that see no key. shared (nheads, 1, 1): 2^-24 sink; None in the
    linear form.
    """

    weight: torch.Tensor
    keys: torch.Tensor
    e_sink: torch.Tensor
    e_keys: torch.Tensor
    again: torch.Tensor
    lse_of_keys: torch.Tensor
    shared: torch.Tensor | None

    def moved(self, size: object, value: torch.Tensor) -> torch.Tensor:
        """value (..., i, n) -> its noise from the weight of the sink."""
        return size(self.weight * value) * (self.e_sink + self.e_keys)


def sink_scores(
    s: torch.Tensor,
    probs: torch.Tensor,
    m: torch.Tensor,
    lse: torch.Tensor,
    sinks: torch.Tensor,
    rises: torch.Tensor | None,
    form: type,
    un: Units,
) -> SinkScores:
    """Return the weight of the sink, with its noise.

    s, probs (batch, nheads, i, j), m, lse (batch, nheads, i, 1), sinks (nheads, 1, 1). rises: the
    noise of the sink from an m that is rounded late.
    """
    size, unit = form.size, form.unit
    none = sinks == -torch.inf
    sink = sinks.masked_fill(none, 0.0)
    weight = sink_weight(sinks, lse)
    keys = probs.sum(-1, keepdim=True)
    largest = s.amax(-1, keepdim=True) if s.shape[-1] else torch.full_like(m, -torch.inf)
    below = (sink - largest).masked_fill((largest == -torch.inf) | none, 0.0).clamp_(min=0.0)
    common = size(sink) * form.steps(1) + form.steps(4) + unit(un.exp)
    if un.narrow_scores:  # the scores and the sink are one tensor, and so are their weights
        common = common + size(sink) * unit(un.u) + unit(un.tiny)
    e_sink = common + size(m - sink) * form.steps(1)
    again = common + size(lse.masked_fill(lse == -torch.inf, 0.0) - sink) * form.steps(1)
    e_keys = size(below) * form.steps(1) + form.steps(2)
    if un.cast_sum:
        e_sink = e_sink + unit(un.u_p)
    if rises is not None:
        e_sink = e_sink + rises
    return SinkScores(
        weight=weight,
        keys=keys,
        e_sink=e_sink.masked_fill(none, 0.0),
        e_keys=e_keys.masked_fill(none, 0.0),
        again=again.masked_fill(none, 0.0),
        lse_of_keys=(lse + torch.log(keys)).masked_fill(keys == 0, 0.0),
        shared=None if form.linear else sink * FLOAT32,
    )


def dsink_rows(
    sink: SinkScores, delta: torch.Tensor, e_delta: torch.Tensor, e_norm: torch.Tensor, rows: int, form: type, un: Units
) -> torch.Tensor:
    """Return the noise of P_sink delta (batch, nheads, i, 1). e_norm: the noise of P from lse.

    rows: of the whole sum, as weights that vanish next to 1 add up over rows.
    """
    size, unit = form.size, form.unit
    again = grown(sink.again) * (1 + e_norm) if un.coarse else sink.again
    relative = again + e_norm + form.steps(4)
    if un.narrow_scores:  # the weight, and its product with delta
        relative = relative + 2 * unit(un.u)
    if un.coarse:
        e_delta = e_delta * (1 + relative)
    return size(sink.weight) * (size(delta) * relative + e_delta) + size(delta) * unit(FLOAT32 * rows**0.5)
