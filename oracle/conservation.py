"""Sums over the gradients whose value is known without an oracle.

They can be checked at lengths for which the oracle does not fit into memory. A constant added to
all scores of a row, and to its sink, adds itself to lse and does not change P. So with any bias and
any mask, sum_j T_ij + dsink_i = dlse_i in each row, where dsink_i is the row's part of dsink. Five
laws follow. q_dq and v_dv hold for every variant, per batch and key head, with its whole group of
query heads. sum_dbias holds for each row of dbias, even if dbias is summed over batches, heads or
queries.

    sum_dk           sum_j dk_j = scale sum_i q_i dlse_i     in each column; no softcap, no sinks
    sum_dbias        sum_j dbias_ij = dlse_i                 no sinks
    sum_dbias_dsink  sum_ij dbias_ij + dsink = sum_i dlse_i  for each head of the bias, with sinks
    q_dq             <q, dq> - <k, dk> = 0                   both are scale sum_ij U_ij q_i k_j
    v_dv             <v, dv> - <out, dout> = 0               both are sum_ij P_ij dP_ij

The noise of a residual is the noise of its terms (noise.py). Errors that terms share are added up
before sizes are taken. An error of delta moves every T_ij of its row by P_ij, so their sum moves by
the same error. An error of lse scales the row with its sink, whose sum is dlse. With the sizes A =
sum_d size(scale q k), D = sum_d size(dout v) of the terms of R and dP, delta' = sum_d dout out, and
f, the slope of a softcap:

    sum_dk     size(scale) sum_i size(q_i) [row_i + n_q sum_j size(T)] + sum_j rounding(dk_j)
               row_i = sum_j E_T + E_delta + E_lse size(dlse)
    sum_dbias  row_i + sum_j rounding(dbias_ij)
    sum_dbias_dsink
               sum_i [row_i + size(P_sink delta) (E_again + steps(4) + n_rows)]
               + sum rounding(dbias) + rounding(dsink)
    q_dq       2 sum_i [sum_j E_U size(R) + E_delta size(sum_j P f R) + E_lse size(sum_j U R)]
               + (n_k + n_q) sum_ij size(U) A + sum size(q) rounding(dq) + sum size(k) rounding(dk)
               (the factor 2, as dq and dk may use different U)
    v_dv       sum_ij [size(P dP) E_s + size(P (dP - delta')) E_s of the forward
               + 2 size(dP) unit(tiny_p) + 2 size(P dP) (unit(u_p) + 2 unit(u_mul))]
               + sum_i [E_lse + size(P_sink) (E_sink + E_keys)] size(delta')
               + (n_k + n_q) sum_ij size(P) D
               + sum size(v) rounding(dv) + sum size(dout) rounding(out)

Sums lose terms, always with the same sign, and out is rounded alike in many rows
(noise_backward.py). Both make delta wrong with the same sign, so this error, `lost`, adds up over
rows: size(scale sum_i q_i lost_i) in sum_dk, size(sum lost_i) where dbias is summed, and twice that
in v_dv, as dv and out both lose terms. (The rounding of out is an error of out alone, but v_dv
counts it twice, too.) The truncation of T by matrix units (`cut` of T) adds up likewise, except in
q_dq and v_dv.

n_q = seqlen_q group unit(acc), n_k = seqlen_k unit(acc) and n_rows = batch seqlen_q unit(acc) are
the noise of adding terms. rounding(x) is the last rounding of a measured x: size(x) (unit(u_out) +
steps(4)) + unit(tiny_out). In the independent form it also has size(x) n for the sum that made x.
There, `total` takes the larger of two sizes; here their sum is taken, which is no smaller.

With GQA, kernels may store dk and dv of each query head h before they sum a group, as
FlashAttention-2 does. Then rounding(dk_h) and rounding(dv_h) are added, with the sizes of their
factors. If the heads cancel each other, these roundings are larger than the rounding of the sum.

The roundings of outputs are measured. Everything else is summed over every row: a single row can
carry all the error, so rows are not sampled.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from .algebra import FORMS
from .attention import operands, sum_broadcast
from .noise import noise
from .noise_out import of_sink
from .rounding import FLUSH, Accumulator, roundoff, smallest_subnormal, units
from .sinks import dsink_rows
from .variant import Variant

# The sums over j that each law needs, and the dk and dv of each query head.
PARTS = {
    "sum_dk": ("t", "dlse", "delta", "size_t", "lost", "cut", "dk_heads"),
    "sum_dbias": ("t", "dlse", "delta", "size_t", "lost", "cut"),
    "sum_dbias_dsink": ("t", "dlse", "delta", "size_t", "lost", "cut", "sink", "sink_shared", "size_sink"),
    "q_dq": ("r", "terms_r", "dk_heads"),
    "v_dv": ("dp", "terms_dp", "lost", "shared", "dv_heads"),
}


def conservation(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    variant: Variant,
    dout: torch.Tensor | None,
    got: object,
    *,
    dlse: torch.Tensor | None = None,
    precision: object,
    form: str = "independent",
    only: Collection[str] = tuple(PARTS),
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return {name: (residual, sigma)} of each law, float64.

    got has the measured out, dq, dk, dv, dbias, dsink; the other arguments are those of
    `attention`. Shapes: sum_dk (batch, nheads_k, headdim); sum_dbias like dbias without its last
    dimension; sum_dbias_dsink (nheads | 1), as in the bias; q_dq, v_dv (batch, nheads_k). A law is
    left out if it does not hold for the variant, if got lacks its gradient, or if `only` does not
    name it. Judge the result with score(residual, zeros, sigma, torch.float64, form).
    """
    algebra, dtype = FORMS[form], q.dtype
    size, unit = algebra.size, algebra.unit
    un = units(dtype, precision, max(q.shape[:3].numel(), k.shape[1]), variant.softcap is not None)
    seqlen_q, seqlen_k = q.shape[1], k.shape[1]
    p = operands(q, k, v, variant, dout, dlse)
    only = _that_hold(variant, got, only)
    sums = _row_sums(p, algebra, un, {part for law in only for part in PARTS[law]})

    def measured(x: torch.Tensor) -> torch.Tensor:
        return x.detach().to(q.device).transpose(1, 2).double()

    def over_rows(x: torch.Tensor) -> torch.Tensor:
        """x (batch, nheads, seqlen_q) -> (batch, nheads_k)."""
        return p.sum_group(x.sum(-1))

    def rounding(x: torch.Tensor, n: int, acc: Accumulator = un.acc_in_backward) -> torch.Tensor:
        added_up = 0.0 if algebra.linear else n * unit(acc.u)
        return size(x) * (unit(un.u_out) + algebra.steps(4) + added_up) + unit(un.tiny_out)

    def cut(n: int, side: torch.Tensor) -> torch.Tensor:
        """Return the noise of one side of a law whose sums, of n products each, are truncated."""
        return size(side) * (algebra.truncation(n) if un.matrix else 0.0)

    def of_heads(name: str, factor: torch.Tensor | None = None) -> torch.Tensor | float:
        """Return the noise of rounding dk or dv of each query head, times the size of its factor.

        factor (batch, nheads, seqlen_k, headdim).
        """
        if p.group == 1:
            return 0.0
        e = size(sums[name]) * unit(un.u_out) + unit(un.tiny_out)
        return p.sum_group(e.sum(2) if factor is None else (e * size(factor)).sum((2, 3)))

    laws = {}
    n_queries = seqlen_q * p.group
    all_q, all_k, all_v, all_dout = p.q, measured(k), measured(v), p.dout
    size_scale = size(p.scale)
    dk = None if got.dk is None else measured(got.dk)
    if "sum_dk" in only:
        per_row = sums["t"] + sums["delta"] + n_queries * unit(un.acc_in_backward.u) * sums["size_t"]
        e = size_scale * p.sum_group((per_row.unsqueeze(-1) * size(p.q)).sum(2))
        for one_sided in (sums["lost"], sums["cut"]):
            e += size(p.scale * p.sum_group((one_sided.unsqueeze(-1) * p.q).sum(2)))
        residual = dk.sum(2)
        if p.dlse is not None:
            residual = residual - p.scale * p.sum_group((sums["dlse"].unsqueeze(-1) * p.q).sum(2))
        laws["sum_dk"] = (residual, algebra.sigma(e + of_heads("dk_heads") + rounding(dk, n_queries).sum(2)))
    if "sum_dbias" in only:
        laws["sum_dbias"] = _sum_dbias(got.dbias, p, sums, algebra, un)
    if "sum_dbias_dsink" in only:
        laws["sum_dbias_dsink"] = _sum_dbias_dsink(got, p, sums, algebra, un)
    if "q_dq" in only:
        dq = measured(got.dq)
        left, right = p.sum_group((all_q * dq).sum((2, 3))), (all_k * dk).sum((2, 3))
        residual = left - right
        e = over_rows(2 * sums["r"] + (seqlen_k + n_queries) * unit(un.acc_in_backward.u) * sums["terms_r"])
        e = e + p.sum_group((size(all_q) * rounding(dq, seqlen_k)).sum((2, 3)))
        e = e + cut(seqlen_k, left) + cut(n_queries, right) + of_heads("dk_heads", p.k)
        laws["q_dq"] = (residual, algebra.sigma(e + (size(all_k) * rounding(dk, n_queries)).sum((2, 3))))
    if "v_dv" in only:
        out, dv = measured(got.out), measured(got.dv)
        left, right = (all_v * dv).sum((2, 3)), p.sum_group((out * all_dout).sum((2, 3)))
        residual = left - right
        added_up = seqlen_k * unit(un.acc.u) + n_queries * unit(un.acc_in_backward.u)
        e = over_rows(sums["dp"] + added_up * sums["terms_dp"])
        e = e + p.sum_group((size(all_dout) * rounding(out, seqlen_k, un.acc)).sum((2, 3)))
        e = e + cut(n_queries, left) + cut(seqlen_k, right)
        e = e + 2 * size(over_rows(sums["lost"])) + size(over_rows(sums["shared"]))
        e = e + of_heads("dv_heads", p.v)
        laws["v_dv"] = (residual, algebra.sigma(e + (size(all_v) * rounding(dv, n_queries)).sum((2, 3))))
    return laws


def _that_hold(variant: Variant, got: object, only: Collection[str]) -> set[str]:
    """Return the laws of `only` that hold for the variant, and whose gradients were measured."""

    def measured(*names: str) -> bool:
        return all(getattr(got, name, None) is not None for name in names)

    sinks, bias = variant.sinks is not None, variant.bias is not None
    return set(only) & {
        name
        for name, holds in {
            "sum_dk": measured("dk") and not sinks and variant.softcap is None,
            "sum_dbias": measured("dbias") and bias and not sinks,
            "sum_dbias_dsink": measured("dbias", "dsink") and bias and sinks,
            "q_dq": measured("dq", "dk"),
            "v_dv": measured("out", "dv"),
        }.items()
        if holds
    }


def _row_sums(p, algebra: type, un, wanted: set[str]) -> dict[str, torch.Tensor]:
    """Return the wanted sums over j of the formulas above, each (batch, nheads, seqlen_q).

    dk_heads, dv_heads, if query heads share a key head: (batch, nheads, seqlen_k, headdim).
    """
    size, unit = algebra.size, algebra.unit
    of_keys = wanted & {"dk_heads", "dv_heads"}
    sums = {name: p.q.new_zeros(p.q.shape[:3]) for name in wanted - of_keys}
    if p.group > 1:
        sums |= {name: torch.zeros_like(p.k if name == "dk_heads" else p.v) for name in of_keys}
    for chunk in p.chunks():
        n = noise(p, chunk, algebra, un, wants_out=False)
        s, t, u, r = n.scores, n.t, n.u, n.scores.products
        e_delta, e_norm = n.delta.noise.squeeze(-1), n.lse.norm.squeeze(-1)
        if "t" in wanted:
            sums["t"][:, :, chunk] = t.noise.sum(-1)
            sums["delta"][:, :, chunk] = e_delta
            sums["size_t"][:, :, chunk] = t.size.sum(-1)
            if p.dlse is not None:
                of_rows = p.dlse[:, :, chunk].masked_fill(s.dead, 0.0).squeeze(-1)  # a dead row has no gradient
                sums["dlse"][:, :, chunk] = of_rows
                sums["delta"][:, :, chunk] += e_norm * size(of_rows)
        if "r" in wanted:
            of_r = (u.noise * size(r)).sum(-1)
            of_r += e_delta * size((u.of_delta * r).sum(-1)) + e_norm * size((u.value * r).sum(-1))
            if s.scaled is not None:
                of_r += (u.size * s.scaled).sum(-1)
            sums["r"][:, :, chunk] = of_r
            sums["terms_r"][:, :, chunk] = (u.size * s.qk).sum(-1)
        if "dp" in wanted:
            size_dp = size(n.dp.value)
            of_p = size_dp * s.size_p
            of_forward = u.size if u is t and p.dlse is None else size(n.delta.moved)
            of_dp = (of_p * n.again).addcmul_(of_forward, s.noise)
            of_dp.add_(of_p, alpha=2 * unit(un.u_p) + 4 * unit(un.u_mul))
            of_dp.add_(size_dp if s.seen is None else size_dp.mul_(s.seen), alpha=2 * unit(un.tiny_p))
            sums["dp"][:, :, chunk] = of_dp.sum(-1) + e_norm * size(n.delta.of_out.squeeze(-1))
            if s.sink is not None:
                sums["dp"][:, :, chunk] += of_sink(s, size, n.delta.of_out).squeeze(-1)
            if n.delta.parts is not None:
                sums["dp"][:, :, chunk] += n.delta.parts.squeeze(-1)
            sums["terms_dp"][:, :, chunk] = (s.size_p * n.dp.terms).sum(-1)
        if "dk_heads" in sums:
            sums["dk_heads"] += p.scale * (u.value.mT @ p.q[:, :, chunk])
        if "dv_heads" in sums:
            sums["dv_heads"] += s.probs.mT @ p.dout[:, :, chunk]
        if "lost" in wanted and n.delta.lost is not None:
            sums["lost"][:, :, chunk] = n.delta.lost.squeeze(-1)
        if "shared" in wanted and n.lse.shared is not None:
            sums["shared"][:, :, chunk] = (n.lse.shared * n.delta.of_out).squeeze(-1)
        if "cut" in wanted and t.cut is not None:
            sums["cut"][:, :, chunk] = t.cut.sum(-1)
        if "sink" in wanted:  # errors of lse and delta are those of the row
            none, signed = torch.zeros_like(n.lse.norm), n.signed_dsink()
            e_sink = dsink_rows(s.sink, n.delta.value, none, none, p.q.shape[:3].numel(), algebra, un)
            sums["sink"][:, :, chunk] = e_sink.squeeze(-1)
            sums["size_sink"][:, :, chunk] = size(s.sink.weight * n.delta.value).squeeze(-1)
            for name, error in (("sink_shared", signed["sink"]), ("cut", signed["cut"])):
                if error is not None:
                    sums[name][:, :, chunk] += error.squeeze(-1)
    return sums


def _sum_dbias(dbias, p, sums, algebra: type, un) -> tuple[torch.Tensor, torch.Tensor]:
    """dbias like bias, sums (batch, nheads, seqlen_q) -> residual, sigma (batch, nheads, seqlen_q).

    The results keep the dimensions of size 1 that bias has.
    """
    of_rows = dbias.detach().to(p.q.device).double()
    per_row, last = _of_dbias(dbias.dtype, of_rows, sums, algebra, un)
    e = sum_broadcast(per_row, of_rows).squeeze(-1)
    for one_sided in (sums["lost"], sums["cut"]):
        e = e + algebra.size(sum_broadcast(one_sided.unsqueeze(-1), of_rows).squeeze(-1))
    residual = of_rows.sum(-1)
    if p.dlse is not None:
        residual = residual - sum_broadcast(sums["dlse"].unsqueeze(-1), of_rows).squeeze(-1)
    return residual, algebra.sigma(e + last.sum(-1))


def _sum_dbias_dsink(got, p, sums, algebra: type, un) -> tuple[torch.Tensor, torch.Tensor]:
    """got has dbias like bias, dsink (nheads) -> residual, sigma (nheads | 1), as in the bias."""
    size, unit, n_rows = algebra.size, algebra.unit, p.q.shape[0] * p.q.shape[2]
    of_rows, dsink = (x.detach().to(p.q.device).double() for x in (got.dbias, got.dsink))

    def of_heads(x: torch.Tensor) -> torch.Tensor:
        """x (batch, nheads, seqlen_q) -> (nheads | 1)."""
        x = x.sum((0, 2))
        return x if of_rows.shape[1] > 1 else x.sum(0, keepdim=True)

    per_row, last = _of_dbias(got.dbias.dtype, of_rows, sums, algebra, un)
    e = of_heads(per_row.squeeze(-1) + sums["sink"] + n_rows * unit(un.acc_in_backward.u) * sums["size_sink"])
    for one_sided in ("lost", "cut", "sink_shared"):
        e = e + size(of_heads(sums[one_sided]))
    e = e + of_heads(last.sum(-1))
    rounded = size(dsink) * (unit(roundoff(got.dsink.dtype)) + algebra.steps(4)) + unit(FLUSH)
    e = e + of_heads(rounded[None, :, None])
    residual = of_heads(of_rows.sum(-1)) + of_heads(dsink[None, :, None])
    if p.dlse is not None:
        residual = residual - of_heads(sums["dlse"])
    return residual, algebra.sigma(e)


def _of_dbias(dtype: torch.dtype, of_rows: torch.Tensor, sums, algebra: type, un) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the noise (batch, nheads, seqlen_q, 1) of rows, and of rounding dbias, of_rows."""
    u, tiny = roundoff(dtype), max(smallest_subnormal(dtype), FLUSH)
    per_row = (sums["t"] + sums["delta"]).unsqueeze(-1)
    broadcast = per_row.numel() / max(1, of_rows.shape[:3].numel())
    if broadcast > 1:
        per_row = per_row + broadcast * algebra.unit(un.acc_in_backward.u) * sums["size_t"].unsqueeze(-1)
    added_up = 0.0 if algebra.linear or broadcast <= 1 else broadcast * algebra.unit(un.acc_in_backward.u)
    last = algebra.size(of_rows) * (algebra.unit(u) + algebra.steps(1) + added_up) + algebra.unit(tiny)
    return per_row, last
