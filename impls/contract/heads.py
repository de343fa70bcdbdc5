"""The order of query heads. The suite's is blocks: query head h reads key head h // group.

An implementation that declares gqa_order="modulo" gets and returns them in another order, so that
its head h reads key head h % nheads_k. Every tensor that has query heads is permuted.
"""

from __future__ import annotations

from typing import Any

import torch

from flash_attest.impls.contract.record import Implementation

# The dimension of the query heads, in the public layout. Keys and kv_indices have key heads.
DIMENSION = {
    "q": -2, "dout": -2, "dlse": -2, "bias": 1, "sinks": 0, "block_mask": 1,
    "out": -2, "lse": -2, "dq": -2, "dbias": 1, "dsink": 0,
}  # fmt: skip


def order_of(impl: Implementation, nheads: int, nheads_k: int) -> torch.Tensor | None:
    """Return the query head that stands at each position of the implementation's order.

    None if it is the suite's. A merge has no key heads, so its order is the suite's. A call outside
    of the contract may have numbers of heads that do not divide, and then no order at all.
    """
    if impl.gqa_order == "blocks" or nheads_k in (0, 1, nheads) or impl.supports.form == "parts":
        return None
    if nheads % nheads_k:
        return None
    return torch.arange(nheads).unflatten(0, (nheads_k, -1)).T.flatten()


def ordered(impl: Implementation, x: Any) -> Any:
    """Return Inputs (public layout, dense) with query heads in the implementation's order."""
    order = order_of(impl, x.q.shape[2], x.k.shape[2])
    return x if order is None else x.with_(**permuted(x, order))


def usual(order: torch.Tensor | None, outputs: Any) -> Any:
    """Return Outputs, or a dict of tensors, (public layout) with query heads in the suite's order.

    order: what `order_of` returns.
    """
    return outputs if order is None else type(outputs)(**dict(outputs.items()) | permuted(outputs, order.argsort()))


def permuted(record: Any, order: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the tensors of a record or a dict that have query heads, permuted. A bias may have one
    head for all.
    """
    return {
        name: tensor.index_select(DIMENSION[name], order.to(tensor.device))
        for name, tensor in record.items()
        if name in DIMENSION and tensor.shape[DIMENSION[name]] > 1
    }
