"""Forward and backward on tensors: allocates, launches, returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from triton import cdiv

from flash_attest.impls.contract.arguments import check_backward, unit_stride

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

    def forward(self, q, k, v, *, causal=False, bias=None, softmax_scale=None):
        """q (b, sq, h, d), k, v (b, sk, hk, d), bias (b | 1, h | 1, 1 | sq, sk) -> out, lse.

        out is like q, lse (b, h, sq) in float32. Raises ValueError for invalid arguments, before
        any launch.
        """
        p = self._problem(q, k, v, bias, causal, softmax_scale)
        q, k, v = (unit_stride(x) for x in (q, k, v))
        bias = None if bias is None else unit_stride(bias)
        out = q.new_empty(q.shape)
        lse = q.new_empty(p.batch, p.nheads, p.seqlen_q, dtype=torch.float32)
        compute_forward.launch(
            lambda m, n: p.batch * p.nheads * cdiv(p.seqlen_q, m),
            q,
            p.operations(products=2),
            self.tiles.get("forward"),
            q_ptr=q, k_ptr=k, v_ptr=v, out_ptr=out, lse_ptr=lse,
            q_strides=strides_of(q), k_strides=strides_of(k), v_strides=strides_of(v), out_strides=strides_of(out),
            nheads=p.nheads, **p.scoring(q, bias), **p.loops(q, bias), **p.arguments(q, k, v, out),
        )  # fmt: skip
        return out, lse

    def backward(
        self, dout, q, k, v, out, lse, *, causal=False, bias=None, softmax_scale=None, into=None, wants_dbias=True
    ):
        """dout, out like q, lse (b, h, sq) -> dq, dk, dv like q, k, v[, dbias like bias].

        into: tensors (dq, dk, dv) to write to, for packed gradients; any strides, but a last stride
        of 1. wants_dbias=False skips dbias, for a bias that is only a mask. Raises as `forward`
        does.
        """
        p = self._problem(q, k, v, bias, causal, softmax_scale)
        check_backward(q, out, dout, lse)
        if into is not None:
            check_into(into, (q, k, v))
        q, k, v, out, dout = (unit_stride(x) for x in (q, k, v, out, dout))
        bias = None if bias is None else unit_stride(bias)
        dq, dk, dv = into or (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape))

        x = _Tensors(q, k, v, bias, dout, lse.contiguous(), self._delta(p, out, dout))
        if self.atomic:
            self._dk_dv_dq(p, x, dq, dk, dv)
        else:
            self._dk_dv(p, x, dk, dv)
            self._dq(p, x, dq)
        return (dq, dk, dv, self._dbias(p, x)) if bias is not None and wants_dbias else (dq, dk, dv)

    def _problem(self, q, k, v, bias, causal, softmax_scale) -> Problem:
        forced = bool(self.tiles)
        return problem_of(q, k, v, bias, causal, softmax_scale, self.alignment, self.tf32, forced, self.largest)

    def _delta(self, p: Problem, out, dout):
        delta = out.new_empty(p.batch, p.nheads, p.seqlen_q, dtype=torch.float32)
        compute_delta.launch(
            lambda m, n: p.batch * p.nheads * cdiv(p.seqlen_q, m),
            out,
            out_ptr=out, dout_ptr=dout, delta_ptr=delta, out_strides=strides_of(out), dout_strides=strides_of(dout),
            nheads=p.nheads, **p.arguments(out, dout),
        )  # fmt: skip
        return delta

    def _dq(self, p: Problem, x: _Tensors, dq) -> None:
        compute_dq.launch(
            lambda m, n: p.batch * p.nheads * cdiv(p.seqlen_q, m),
            x.q,
            p.operations(products=3),
            self.tiles.get("dq"),
            dq_ptr=dq, dq_strides=strides_of(dq), nheads=p.nheads,
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
            dq_strides=strides_of(dq if atomic else x.q), nheads_k=p.nheads_k, ATOMIC=atomic,
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
