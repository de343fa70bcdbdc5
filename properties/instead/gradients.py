"""Mistakes of the backward alone: delta, lse, factors, and sums over heads, rows and tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from flash_attest import oracle
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.oracle.attention import sum_broadcast
from flash_attest.properties.instead.answer import Answer, Changed, Predicted
from flash_attest.properties.instead.inputs import COLUMNS, Words, in_other_order, words_of_other_order
from flash_attest.properties.instead.keys import TILES, tiles_of
from flash_attest.properties.instead.mistake import Mistake, delta_of, given, mapped, of_gradients, only


def base(answer: Answer) -> Predicted:
    """Return the right gradients for out and lse as the forward returned them."""
    return answer.kept("base", lambda: given(answer, answer.plain) or answer.right)


# --- delta and lse --------------------------------------------------------------------------------


def _delta(name: str, words: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Mistake:
    """Return the mistake of another delta. change: right delta (b, h, sq, 1) -> the other."""

    def predicted(answer: Answer) -> Predicted | None:
        delta = delta_of(answer.operands(answer.plain)[0], answer.got["out"])
        other = change(delta)
        lse = answer.got.get("lse", answer.right.want["lse"])
        return None if bool((other == delta).all()) else given(answer, answer.plain, lse=lse, delta=other)

    return of_gradients(name, words, predicted)


def _of_columns(n: int) -> Mistake:
    """Return the mistake of a delta that sums the first n columns only."""

    def predicted(answer: Answer) -> Predicted | None:
        if answer.case.headdim_v <= n:
            return None
        lse, out = answer.got.get("lse", answer.right.want["lse"]), answer.got["out"].clone()
        out[..., n:] = 0
        return given(answer, answer.plain, lse=lse, delta=delta_of(answer.operands(answer.plain)[0], out))

    return of_gradients(f"delta of {n} columns", f"with delta of the first {n} columns", predicted)


def _lse(name: str, words: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Mistake:
    """Return the mistake of reading another lse. change: lse (b, h, sq) -> the other."""

    def predicted(answer: Answer) -> Predicted | None:
        lse = answer.got.get("lse")
        other = None if lse is None else change(lse)
        return None if other is None or bool((other == lse).all()) else given(answer, answer.plain, lse=other)

    return of_gradients(name, words, predicted)


def _at_0(dim: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x.narrow(dim, 0, 1).expand_as(x)


def _unnormalised(answer: Answer) -> Predicted | None:
    m = oracle.row_maximum(answer.x.q, answer.x.k, answer.variant)
    outputs = given(answer, answer.plain, lse=m)
    return outputs and only(outputs, "dv")


ROWS = (
    _delta("no delta", "without delta: dS = P dP in place of P (dP - delta)", torch.zeros_like),
    _delta("delta of the next query", "with delta of the next query", lambda x: x.roll(-1, 2)),
    _delta("delta of the query before", "with delta of the query before", lambda x: x.roll(1, 2)),
    _delta("delta of query 0", "with delta of query 0 in every query", _at_0(2)),
    _delta("delta of head 0", "with delta of head 0 in every head", _at_0(1)),
    _delta("delta of batch 0", "with delta of batch 0 in every batch", _at_0(0)),
    _delta("negative delta", "with dS = P (dP + delta) in place of P (dP - delta)", lambda x: -x),
    *(
        _delta(f"delta of the first {tile} queries", f"with delta of the first tile of {tile} queries in every tile",
               lambda x, tile=tile: x[:, :, torch.arange(x.shape[2]) % tile])
        for tile in TILES
    ),
    *map(_of_columns, COLUMNS),
    _lse("lse of the next query", "with lse of the next query", lambda x: x.roll(-1, 2)),
    _lse("lse of query 0", "with lse of query 0 in every query", _at_0(2)),
    _lse("lse of head 0", "with lse of head 0 in every head", _at_0(1)),
    _lse("lse of batch 0", "with lse of batch 0 in every batch", _at_0(0)),
    _lse("reads lse in base 2", "with lse in base 2 taken for the natural one", lambda x: x / math.log(2)),
    _lse("reads lse times ln 2", "with lse times ln 2", lambda x: x * math.log(2)),
    of_gradients("P unnormalised", "with P that is not divided by the row sum l", _unnormalised),
)  # fmt: skip


# --- factors --------------------------------------------------------------------------------------


def _factor(name: str, words: str, factor: Callable[[Answer], float]) -> Mistake:
    """Return the mistake of a factor of gradients. factor(answer): 1 if it changes nothing."""

    def predicted(answer: Answer) -> Predicted | None:
        by = factor(answer)
        return None if by == 1 or not by else mapped(base(answer), lambda name, tensor: tensor * by)

    return of_gradients(name, words, predicted)


FACTORS = (
    _factor("no scale in", "without the factor softmax_scale", lambda a: 1 / a.case.scale if a.case.scale else 0.0),
    _factor("scale twice in", "with the factor softmax_scale once too often", lambda a: a.case.scale),
    _factor("ln 2 in", "with a factor of ln 2", lambda a: math.log(2)),
    _factor("log2 e in", "with a factor of log2(e), 1.4427", lambda a: 1 / math.log(2)),
    _factor("group in", "with a factor of nheads // nheads_k", lambda a: float(a.group)),
    _factor("mean of group in", "of the mean of a group of heads, not of its sum", lambda a: 1 / a.group),
    _factor("doubled", "with a factor of 2", lambda a: 2.0),
    _factor("halved", "with a factor of 1/2", lambda a: 0.5),
    _factor("negative", "with the opposite sign", lambda a: -1.0),
)


# --- sums -----------------------------------------------------------------------------------------


def _of_group(name: str, words: Words, change: Callable[[Answer, torch.Tensor], torch.Tensor]) -> Mistake:
    """Return the mistake of another sum over the heads of a group.

    change: (answer, dk or dv of each query head (b, sk, h, d)) -> (b, sk, hk, d).
    """

    def predicted(answer: Answer) -> Predicted | None:
        if answer.group == 1:
            return None
        x = answer.x
        copies = {n: getattr(x, n).repeat_interleave(answer.group, 2) for n in ("k", "v")}

        def back(output: str, tensor: torch.Tensor) -> torch.Tensor:
            return change(answer, tensor) if output in ("dk", "dv") else tensor

        inputs = Changed(x.with_(**copies), answer.variant, back)
        return only(given(answer, inputs) or answer.under(inputs), "dk", "dv")

    return of_gradients(name, words, predicted)


def _groups(answer: Answer, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.unflatten(2, (answer.case.nheads_k, answer.group))


def _sum_in_other_order(answer: Answer, tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.new_zeros(*tensor.shape[:2], answer.case.nheads_k, tensor.shape[3])
    return total.index_add_(2, in_other_order(answer), tensor)


def _with_dout(name: str, words: str, change: Callable[[Answer], Inputs | None], *names: str):
    """Return the mistake of another dout in these gradients. change: None if it does not apply."""

    def predicted(answer: Answer) -> Predicted | None:
        other = change(answer)
        if other is None or bool((other.dout == answer.x.dout).all()):
            return None
        return only(answer.under(Changed(other, answer.variant)), *names)

    return of_gradients(name, words, predicted)


def _next_dout(by: int) -> Callable[[Answer], Inputs]:
    return lambda answer: answer.x.with_(dout=answer.x.dout.roll(by, 1))


def _without_last_queries(tile: int) -> Callable[[Answer], Inputs | None]:
    def change(answer: Answer) -> Inputs | None:
        n, known = answer.case.seqlen_q, answer.impl.tile
        last = n // tile * tile
        if not 0 < last < n or tile not in ((known[0],) if known else TILES):
            return None
        x, kept = answer.x, torch.arange(n) < last
        return x.with_(dout=x.dout * kept[:, None, None], dlse=None if x.dlse is None else x.dlse * kept)

    return change


def _of_last_keys(tile: int) -> Mistake:
    """Return the mistake of storing the dq of each key tile over the one before."""

    def predicted(answer: Answer) -> Predicted | None:
        n = answer.case.seqlen_k
        if n <= tile or tile not in tiles_of(answer):
            return None
        p, *_ = answer.operands(answer.plain)
        first = (n - 1) // tile * tile
        dq = p.scale * (dr_of(answer)[..., first:] @ p.k[:, :, first:])
        return Predicted({"dq": dq.transpose(1, 2)}, answer.right.sigma)

    return of_gradients(f"dq of the last {tile} keys", f"of the last tile of {tile} keys alone: earlier tiles are lost",
                        predicted)  # fmt: skip


def ds_of(answer: Answer) -> torch.Tensor:
    """Return dS (b, h, i, j): the gradient of a bias that is not broadcast."""
    case, x = answer.case, answer.x

    def make() -> torch.Tensor:
        full = torch.zeros(case.batch, case.nheads, case.seqlen_q, case.seqlen_k, dtype=torch.float64)
        bias = full if x.bias is None else full + x.bias.double()
        return answer.under(Changed(x.with_(bias=bias), replace(answer.variant, bias=bias))).want["dbias"]

    return answer.kept("dS", make)


def dr_of(answer: Answer) -> torch.Tensor:
    """Return dR (b, h, i, j): dS times the slope of the softcap, if there is one."""
    p, *_ = answer.operands(answer.plain)
    slope = p.slope(p.products(slice(None)))
    return ds_of(answer) if slope is None else ds_of(answer) * slope


def _of_dbias(name: str, words: str, at: int) -> Mistake:
    """Return the mistake of keeping one batch, head or query where dbias should be a sum."""

    def predicted(answer: Answer) -> Predicted | None:
        bias, ds = answer.x.bias, ds_of(answer) if "dbias" in answer.got else None
        if ds is None or bias.shape == ds.shape:
            return None
        for dim in range(3):
            if bias.shape[dim] == 1:
                ds = ds.narrow(dim, at % ds.shape[dim], 1)
        return Predicted({"dbias": ds}, answer.right.sigma)

    return of_gradients(name, words, predicted)


def _of_last_queries(tile: int) -> Mistake:
    """Return the mistake of storing the dbias of each query tile over the one before."""

    def predicted(answer: Answer) -> Predicted | None:
        rows, known = answer.case.seqlen_q, answer.impl.tile
        if "dbias" not in answer.got or answer.x.bias.shape[2] > 1 or rows <= tile:
            return None
        if tile not in ((known[0],) if known else TILES):
            return None
        last = ds_of(answer)[:, :, (rows - 1) // tile * tile :]
        return Predicted({"dbias": sum_broadcast(last, answer.x.bias)}, answer.right.sigma)

    return of_gradients(f"dbias of the last {tile} queries",
                        f"of the last tile of {tile} queries alone: earlier tiles are lost", predicted)  # fmt: skip


SUMS = (
    _of_group("last head of group", "of the last query head of each group alone", lambda a, x: _groups(a, x)[:, :, :, -1]),
    _of_group("first head of group", "of the first query head of each group alone", lambda a, x: _groups(a, x)[:, :, :, 0]),
    _of_group("sum of heads in the other order", words_of_other_order("summed over the heads"), _sum_in_other_order),
    _with_dout("dout of the query before", "with dout of the query before", _next_dout(1), "dv"),
    _with_dout("dout of the next query", "with dout of the next query", _next_dout(-1), "dv"),
    *(
        _with_dout(f"no last queries of {tile}", f"without the last, partial tile of {tile} queries",
                   _without_last_queries(tile), "dq", "dk", "dv", "dbias")
        for tile in TILES
    ),
    *map(_of_last_keys, TILES),
    *map(_of_last_queries, TILES),
    _of_dbias("dbias of the first", "of the first batch, head or query alone, where it should be a sum", 0),
    _of_dbias("dbias of the last", "of the last batch, head or query alone, where it should be a sum", -1),
)  # fmt: skip
