"""The tensors of a call, and the order of their dimensions.

In the public layout, lse is (batch, nheads, seqlen_q), in natural log, and every other tensor is
(batch, seqlen, nheads, headdim).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch

from flash_attest.impls.contract.plan import Plan
from flash_attest.impls.contract.record import Implementation

TABLES = (
    "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "block_table", "cache_seqlens", "cache_batch_idx",
)  # fmt: skip
# Inputs whose dimensions have the same order in every layout.
ONE_LAYOUT = ("bias", "sinks", "dlse", "block_mask", "kv_indices", "lse_parts", *TABLES)


def tensors_of(record: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, tensor) for each field of a dataclass that is a tensor."""
    for field in fields(record):
        if isinstance(tensor := getattr(record, field.name), torch.Tensor):
            yield field.name, tensor


@dataclass(frozen=True)
class Inputs:
    """The inputs of a call.

    q (b, sq, h, d), dout (b, sq, h, dv), k (b, sk, hk, d), v (b, sk, hk, dv), where dv is
    headdim_v; bias None or (b | 1, h | 1, 1 | sq, sk). A bias in torch.bool is a mask, True where a
    query sees a key. sinks (h) or None; dlse (b, h, sq) or None, the gradient with respect to the
    natural logarithm. Both are float32. block_mask (b, h, blocks of queries, blocks of keys), bool,
    and kv_indices (b, sq, hk, topk), int32, or None, as in Supports.hidden.

    A call of another form (Supports.form) has its buffers in q, k, v, dout and dlse, its tables and
    lengths in the fields behind them, and its plan. With form="parts", q, k and v are None.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor
    bias: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    dlse: torch.Tensor | None = None
    block_mask: torch.Tensor | None = None
    kv_indices: torch.Tensor | None = None
    cu_seqlens_q: torch.Tensor | None = None
    cu_seqlens_k: torch.Tensor | None = None
    seqused_q: torch.Tensor | None = None
    seqused_k: torch.Tensor | None = None
    block_table: torch.Tensor | None = None
    cache_seqlens: torch.Tensor | None = None
    cache_batch_idx: torch.Tensor | None = None
    k_new: torch.Tensor | None = None
    v_new: torch.Tensor | None = None
    out_parts: torch.Tensor | None = None
    lse_parts: torch.Tensor | None = None
    plan: Plan | None = None  # of the buffers; None in the dense form

    def with_(self, **changed: torch.Tensor) -> Inputs:
        """Return the same inputs with some tensors replaced."""
        return replace(self, **changed)

    def items(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (name, tensor) for each input that is not None."""
        return tensors_of(self)

    @property
    def nbytes(self) -> list[int]:
        """The size of each input in bytes. Implementations often allocate memory of these sizes."""
        return [tensor.nbytes for _, tensor in self.items()]


@dataclass(frozen=True)
class Outputs:
    """The outputs of a call. Those that were not computed are None.

    out (b, sq, h, dv), lse (b, h, sq); gradients are shaped like q, k, v, bias and sinks.
    """

    out: torch.Tensor | None = None
    lse: torch.Tensor | None = None
    dq: torch.Tensor | None = None
    dk: torch.Tensor | None = None
    dv: torch.Tensor | None = None
    dbias: torch.Tensor | None = None
    dsink: torch.Tensor | None = None

    def copy(self) -> Outputs:
        """Return a deep copy: the same values in new memory."""
        return Outputs(**{name: tensor.clone() for name, tensor in self.items()})

    def items(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (name, tensor) for each output that is not None."""
        return tensors_of(self)


def to_layout(impl: Implementation, tensor: torch.Tensor) -> torch.Tensor:
    """(b, s, h, d) -> the same values, contiguous in the implementation's layout."""
    return contiguous(from_layout(impl, tensor))


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy, with the strides of a new tensor.

    Tensor.contiguous() keeps any stride of a dimension of size 1.
    """
    strides = [1]
    for size in reversed(tensor.shape[1:]):
        strides.insert(0, strides[0] * max(size, 1))
    tensor = tensor.contiguous()
    return tensor if tensor.stride() == tuple(strides) else tensor.as_strided(tensor.shape, strides)


def from_layout(impl: Implementation, tensor: torch.Tensor) -> torch.Tensor:
    """Return a view (b, s, h, d) of a tensor in the implementation's layout.

    Buffers of packed sequences, (total, h, d), have one layout.
    """
    return tensor.transpose(-3, -2) if impl.layout == "bhsd" and tensor.dim() >= 4 else tensor


def public_input(impl: Implementation, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of an input in the public layout. Those of ONE_LAYOUT have no other."""
    return tensor if name in ONE_LAYOUT else from_layout(impl, tensor)
