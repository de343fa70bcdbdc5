"""Forward and backward of sequences of different lengths, packed one behind the other."""

from __future__ import annotations

from dataclasses import dataclass

from .attention import FlashAttention2
from .problem import Problem


@dataclass(frozen=True)
class FlashAttention2Varlen:
    """The same kernels for q (total_q, nheads, headdim), k (total_k, nheads_k, headdim) and v
    (total_k, nheads_k, headdim_v).

    Sequence b has the queries cu_seqlens_q[b] .. cu_seqlens_q[b + 1] and the keys cu_seqlens_k[b]
    .. cu_seqlens_k[b + 1]. A mask is aligned with its last query and its last key. Both tensors are
    int32, (batch + 1), begin with 0 and never decrease. Rows from their last number on belong to
    nobody: they are not read, and what results hold there is undefined. max_seqlen_q and
    max_seqlen_k are at least the longest lengths; rows of a longer sequence would not be computed.
    On a GPU none of this is checked, as the numbers would have to be waited for.
    """

    way: FlashAttention2

    def forward(self, q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **options):
        """Return out (total_q, nheads, headdim_v) and lse, float32 (nheads, total_q).

        options: causal, window, softmax_scale, softcap, sinks, as of FlashAttention2. Raises
        ValueError for invalid arguments, before any launch.
        """
        p = self._problem(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, options)
        return self.way.compute(p, q, k, v, sinks=options.get("sinks"))

    def backward(
        self, dout, q, k, v, out, lse, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dlse=None, **options
    ):  # fmt: skip
        """dout, out, lse, dlse as of `forward` -> dq, dk, dv[, dsink], like what they belong to."""
        p = self._problem(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, options)
        return self.way.differentiate(p, dout, q, k, v, out, lse, sinks=options.get("sinks"), dlse=dlse)

    def _problem(self, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, options) -> Problem:
        return self.way.problem(q, k, v, lengths=(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), **options)
