"""Forward and backward on tensors: allocates, launches, returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from triton import cdiv

from flash_attest.impls.contract.arguments import check_like, unit_stride

from .backward import compute_delta, compute_dk_dv, compute_dk_dv_dq, compute_dq
from .bias_gradient import compute_dbias
from .forward import compute_forward
from .problem import LARGEST_HEADDIM, Problem, check_into, problem_of, strides_of, strides_of_bias
from .tuning import Tile


@dataclass(frozen=True)
class FlashAttention2:
    """One way to compute attention with these kernels.

    atomic: dq is summed by atomics (one backward kernel, not repeatable) instead of in a separate
    kernel.
    tf32: float32 products run on the matrix units, rounded to tf32.
    alignment: the alignment of the causal mask if seqlen_q != seqlen_k.
    tiles: {kernel: Tile} forces the tile of a kernel.
    largest: the largest supported head dim.
    """

    atomic: bool = False
    tf32: bool = False
    alignment: str = "bottom_right"
    tiles: Mapping[str, Tile] = field(default_factory=dict)
    largest: int = LARGEST_HEADDIM

    def forward(self, q, k, v, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None, sinks=None):
        """q (b, sq, h, d), k (b, sk, hk, d), v (b, sk, hk, dv) -> out (b, sq, h, dv), lse.

        bias is (b | 1, h | 1, 1 | sq, sk). lse (b, h, sq) and sinks (h) are float32. Raises
        ValueError for invalid arguments, before any launch.
        """
        p = self.problem(q, k, v, bias, causal, softmax_scale, window=window, softcap=softcap, sinks=sinks)
        return self.compute(p, q, k, v, bias, sinks)

    def compute(self, p: Problem, q, k, v, bias=None, sinks=None):
        """Return out and lse of a problem."""
        q, k, v = (unit_stride(x) for x in (q, k, v))
        bias, sinks = p.neutral(q, None if bias is None else unit_stride(bias), sinks)
        out = q.new_empty(*q.shape[:-1], p.headdim_v)
        lse = q.new_empty(p.statistics, dtype=torch.float32)
        compute_forward.launch(
            lambda m, n: p.batch * p.nheads * cdiv(p.seqlen_q, m),
            q,
            p.operations(products=2),
            self.tiles.get("forward"),
            q_ptr=q, k_ptr=k, v_ptr=v, out_ptr=out, lse_ptr=lse,
            q_strides=strides_of(q), k_strides=strides_of(k), v_strides=strides_of(v), out_strides=strides_of(out),
            sinks_ptr=lse if sinks is None else sinks.contiguous(), SINKS=sinks is not None, nheads=p.nheads,
            **p.scoring(q, bias), **p.loops(q, bias), **p.arguments(q, k, v, out), **p.lengths("q", "k"),
        )  # fmt: skip
        return out, lse

    def backward(
        self, dout, q, k, v, out, lse, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None,
        sinks=None, dlse=None, into=None, wants_dbias=True,
    ):  # fmt: skip
        """dout, out, lse as of `forward` -> dq, dk, dv[, dbias][, dsink], like what they belong to.

        dlse: the gradient with respect to lse, of the same shape, or None. into: tensors (dq, dk,
        dv) to write to, for packed gradients; any strides, but a last stride of 1.
        wants_dbias=False skips dbias, for a bias that is only a mask. Raises as `forward` does.
        """
        p = self.problem(q, k, v, bias, causal, softmax_scale, window=window, softcap=softcap, sinks=sinks)
        return self.differentiate(p, dout, q, k, v, out, lse, bias, sinks, dlse, into, wants_dbias)

    def differentiate(
        self, p: Problem, dout, q, k, v, out, lse, bias=None, sinks=None, dlse=None, into=None, wants_dbias=True
    ):  # fmt: skip
        """Return dq, dk, dv[, dbias][, dsink] of a problem."""
        self._check_backward(p, q, out, dout, lse, dlse)
        if into is not None:
            check_into(into, (q, k, v))
        q, k, v, out, dout = (unit_stride(x) for x in (q, k, v, out, dout))
        wants_dbias, wants_dsink = wants_dbias and bias is not None, sinks is not None
        dtype = bias.dtype if wants_dbias else None
        bias, sinks = p.neutral(q, None if bias is None else unit_stride(bias), sinks)
        dq, dk, dv = into or (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape))

        lse = lse.contiguous()
        delta, dsink = self._delta(p, out, dout, lse, dlse, sinks)
        x = _Tensors(q, k, v, bias, dout, lse, delta)
        if self.atomic:
            self._dk_dv_dq(p, x, dq, dk, dv)
        else:
            self._dk_dv(p, x, dk, dv)
            self._dq(p, x, dq)
        dbias = [self._dbias(p, x).to(dtype)] if wants_dbias else []
        return (dq, dk, dv, *dbias, *([dsink] if wants_dsink else []))

    def _check_backward(self, p: Problem, q, out, dout, lse, dlse) -> None:
        for name, x in (("out", out), ("dout", dout)):
            check_like(name, x, (*q.shape[:-1], p.headdim_v), q.dtype, q.device)
        for name, x in (("lse", lse), ("dlse", dlse)):
            if x is not None or name == "lse":
                check_like(name, x, p.statistics, torch.float32, q.device)

    def problem(self, q, k, v, bias=None, causal=False, softmax_scale=None, **options) -> Problem:
        """Check a call and return its Problem (problem_of)."""
        return problem_of(
            q, k, v, bias, causal, softmax_scale, **options,
            alignment=self.alignment, tf32=self.tf32, forced=bool(self.tiles), largest=self.largest,
        )  # fmt: skip

    def _delta(self, p: Problem, out, dout, lse, dlse, sinks):
        """Return delta, and dsink if there are sinks.

        The kernel writes the part of each query, and torch sums them, without atomics.
        """
        delta = torch.empty_like(lse)
        # Rows that belong to no sequence have no part.
        parts = delta if sinks is None else torch.zeros_like(lse) if p.packed else torch.empty_like(lse)
        compute_delta.launch(
            lambda m, n: p.batch * p.nheads * cdiv(p.seqlen_q, m),
            out,
            out_ptr=out, dout_ptr=dout, dlse_ptr=lse if dlse is None else dlse.contiguous(), lse_ptr=lse,
            sinks_ptr=lse if sinks is None else sinks.contiguous(), delta_ptr=delta, dsink_ptr=parts,
            out_strides=strides_of(out), dout_strides=strides_of(dout), nheads=p.nheads,
            DLSE=dlse is not None, SINKS=sinks is not None, **p.arguments(out, dout), **p.lengths("q"),
        )  # fmt: skip
        return delta, None if sinks is None else parts.sum(1 if p.packed else (0, 2))

    def _dq(self, p: Problem, x: _Tensors, dq) -> None:
        compute_dq.launch(
            lambda m, n: p.batch * p.nheads * cdiv(p.seqlen_q, m),
            x.q,
            p.operations(products=3),
            self.tiles.get("dq"),
            dq_ptr=dq, dq_strides=strides_of(dq), nheads=p.nheads, **p.lengths("q", "k"),
            **x.arguments(), **p.scoring(x.q, x.bias), **p.loops(x.q, x.bias), **p.arguments(x.q, x.k, x.v, x.dout, dq),
        )  # fmt: skip

    def _dk_dv(self, p: Problem, x: _Tensors, dk, dv, dq=None) -> None:
        """Write dk and dv. If dq (float32, zero) is given, add to it with atomics.

        Without dq, dk and q are passed as unused placeholders.
        """
        atomic = dq is not None
        (compute_dk_dv_dq if atomic else compute_dk_dv).launch(
            lambda m, n: p.batch * p.nheads_k * cdiv(p.seqlen_k, n),
            x.q,
            p.operations(products=5 if atomic else 4),
            self.tiles.get("dk_dv_dq" if atomic else "dk_dv"),
            dq_ptr=dq if atomic else dk, dk_ptr=dk, dv_ptr=dv, dk_strides=strides_of(dk), dv_strides=strides_of(dv),
            dq_strides=strides_of(dq if atomic else x.q), nheads_k=p.nheads_k, ATOMIC=atomic, **p.lengths("q", "k"),
            **x.arguments(), **p.scoring(x.q, x.bias), **p.loops(x.q, x.bias), **p.arguments(x.q, x.k, x.v, x.dout, dk, dv),
        )  # fmt: skip

    def _dk_dv_dq(self, p: Problem, x: _Tensors, dq, dk, dv) -> None:
        total = torch.zeros(x.q.shape, dtype=torch.float32, device=x.q.device)
        self._dk_dv(p, x, dk, dv, total)
        dq.copy_(total)

    def _dbias(self, p: Problem, x: _Tensors):
        """Return dbias.

        For a vector the kernel sums over queries, and torch sums over broadcast dimensions in
        float32.
        """
        bias, vector = x.bias, x.bias.shape[2] == 1
        if p.pairs == 0:
            return torch.zeros_like(bias)
        size = (p.batch, p.nheads, 1, p.seqlen_k) if vector else bias.shape
        dbias = torch.empty(size, dtype=torch.float32 if vector else bias.dtype, device=bias.device)
        compute_dbias.launch(
            lambda m, n: size[0] * size[1] * cdiv(p.seqlen_k, n) * (1 if vector else cdiv(p.seqlen_q, m)),
            x.q,
            dbias_ptr=dbias, dbias_strides=strides_of_bias(dbias), nheads=p.nheads,
            shared_batch=p.batch // max(size[0], 1), shared_heads=p.nheads // max(size[1], 1),
            vector=int(vector),
            **x.arguments(), **p.scoring(x.q, bias), **p.arguments(x.q, x.k, x.v, x.dout),
        )  # fmt: skip
        return dbias.sum_to_size(bias.shape).to(bias.dtype)


@dataclass(frozen=True)
class _Tensors:
    """The tensors that every kernel of the backward reads."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    bias: torch.Tensor | None
    dout: torch.Tensor
    lse: torch.Tensor
    delta: torch.Tensor

    def arguments(self) -> dict:
        return dict(
            q_ptr=self.q, k_ptr=self.k, v_ptr=self.v, dout_ptr=self.dout, lse_ptr=self.lse, delta_ptr=self.delta,
            q_strides=strides_of(self.q), k_strides=strides_of(self.k), v_strides=strides_of(self.v),
            dout_strides=strides_of(self.dout),
        )  # fmt: skip
