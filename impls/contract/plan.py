"""Plan: where the rows of a dense problem lie in the buffers of a call of another form.

A form changes the call, not the problem. In a varlen call the sequences of a case lie one behind
the other, among others that are not judged; in a paged call each of their keys has a row in a page.
So a plan is a gather of rows. properties/forms makes plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

OF_QUERIES, OF_KEYS = ("q", "dout", "out", "dq"), ("k", "v", "dk", "dv")


@dataclass(frozen=True, eq=False)
class Plan:
    """A plan of a call: it says where the rows of a case lie.

    All other rows are neighbours', or belong to nobody.

    q_shape, k_shape: the leading dimensions of the buffers, such as (total_q,), or (pages,
    page_size). q_rows (batch, seqlen_q), k_rows (batch, seqlen_k): the row of each query and key of
    the case in its flattened buffer. q_theirs, k_theirs: the rows of neighbours, which are real
    sequences but are not judged. tables: int32 tensors that the call gets, by keyword. numbers:
    ints, likewise. new: rows of keys, (batch of the call, append), that are handed as new ones.
    words: the plan in words, for messages.
    """

    q_shape: tuple[int, ...]
    k_shape: tuple[int, ...]
    q_rows: torch.Tensor
    k_rows: torch.Tensor
    q_theirs: torch.Tensor
    k_theirs: torch.Tensor
    tables: Mapping[str, torch.Tensor]
    numbers: Mapping[str, int] = field(default_factory=dict)
    new: torch.Tensor | None = None
    words: str = ""

    def side(self, name: str) -> tuple[tuple[int, ...], torch.Tensor, torch.Tensor]:
        """Return the leading shape of a tensor's buffer, the rows of the case, and the others'."""
        if name in OF_KEYS:
            return self.k_shape, self.k_rows, self.k_theirs
        return self.q_shape, self.q_rows, self.q_theirs

    def pack(self, x: Any, fill: float) -> Any:
        """Return the Inputs of the call from those of the dense problem, in the public layout.

        fill: what the rows of nobody hold, in q, k, v, dout and dlse.
        """
        # A dsink sums over neighbours, too, unless their dout is 0.
        still = ("dout", "dlse") if x.sinks is not None else ()
        changed = {name: self._packed(name, getattr(x, name), fill, still) for name in ("q", "k", "v", "dout")}
        if x.dlse is not None:
            rows = self._packed("dlse", x.dlse.transpose(1, 2), fill, still)
            changed["dlse"] = rows.transpose(-1, -2).contiguous()
        if self.new is not None:
            changed |= {f"{name}_new": _rows(changed[name])[self.new] for name in ("k", "v")}
            for name in ("k", "v"):
                _rows(changed[name])[self.new.flatten()] = fill
        device = x.dout.device
        tables = {name: table.to(device) for name, table in self.tables.items()}
        return replace(x, **changed, **tables, plan=self)

    def _packed(self, name: str, tensor: torch.Tensor, fill: float, still: tuple[str, ...]) -> torch.Tensor:
        """Return the buffer of a tensor (b, s, ...): its rows, those of neighbours, and `fill`."""
        shape, rows, theirs = self.side(name)
        row = tensor.shape[2:]
        buffer = torch.full((math.prod(shape), *row), fill, dtype=tensor.dtype, device=tensor.device)
        own = tensor.reshape(-1, *row)
        buffer[rows.flatten().to(tensor.device)] = own
        if len(theirs):
            theirs = theirs.to(tensor.device)
            buffer[theirs] = 0.0 if name in still else _of_others(name, own, len(theirs))
        return buffer.view(*shape, *row)

    def append(self, buffer: torch.Tensor, new: torch.Tensor) -> None:
        """Write new rows, (batch, append, nheads_k, headdim), where a call should write them.

        buffer: k or v of the call, in the public layout.
        """
        assert self.new is not None
        buffer[index_of(self.k_shape, self.new.to(buffer.device))] = new

    def unpack(self, outputs: Any) -> Any:
        """Return the Outputs of the dense problem from those of the call, in the public layout."""
        dense = {}
        for name, tensor in outputs.items():
            if name in OF_QUERIES or name in OF_KEYS:
                shape, rows, _ = self.side(name)
                dense[name] = _gathered(tensor.flatten(0, len(shape) - 1), rows)
            elif name == "lse":  # (batch, nheads, rows) or (nheads, rows)
                rows = tensor.transpose(-1, -2).reshape(-1, tensor.shape[-2])
                dense[name] = _gathered(rows, self.q_rows).transpose(1, 2)
            else:
                dense[name] = tensor
        return type(outputs)(**dense)


def index_of(shape: tuple[int, ...], rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the index of rows of a flattened buffer in one with these leading dimensions."""
    return (rows,) if len(shape) == 1 else (rows // shape[1], rows % shape[1])


def _rows(buffer: torch.Tensor) -> torch.Tensor:
    """Return a contiguous buffer of q or k as (rows, nheads, headdim)."""
    return buffer.view(-1, *buffer.shape[-2:])


def _gathered(rows: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """(rows, ...), (batch, seqlen) -> (batch, seqlen, ...)."""
    return rows[at.to(rows.device)]


def _of_others(name: str, own: torch.Tensor, count: int) -> torch.Tensor:
    """Return (count, ...) rows of neighbours.

    They are like the rows of the case, so that their scores have a weight beside its own, but v,
    dout and dlse have the other sign, so that a leak shows.
    """
    if not len(own):
        return torch.ones((count, *own.shape[1:]), dtype=own.dtype, device=own.device)
    rows = own[(torch.arange(count, device=own.device) * 7 + 3) % len(own)].nan_to_num()
    return rows if name in ("q", "k") else -rows
