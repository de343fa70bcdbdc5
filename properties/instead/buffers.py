"""The buffers of a call in another form, and the inputs with other rows of them as keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from flash_attest.impls.contract.tensors import Inputs
from flash_attest.oracle import Mask
from flash_attest.properties.calling.caller import NOBODYS
from flash_attest.properties.forms import packed
from flash_attest.properties.forms.sequences import appended, sequences_of
from flash_attest.properties.instead.answer import Answer, Changed


@dataclass(frozen=True)
class Buffers:
    """The call of an answer, on the CPU and in the public layout.

    x: its inputs. after: k and v with the new keys written. lengths_q, lengths_k: of each sequence
    of the call, neighbours included; new: how many of its keys are new. judged: the numbers of the
    judged sequences.
    """

    form: str
    x: Inputs
    after: dict[str, torch.Tensor]
    lengths_q: list[int]
    lengths_k: list[int]
    new: int
    judged: list[int]

    @property
    def row_size(self) -> int:
        """How many rows of k a sequence of the batch, a slot or a page has."""
        return self.x.k.shape[1]

    def offset(self, sequence: int) -> int:
        """Return how many more keys than queries a sequence has."""
        return self.lengths_k[sequence] - self.lengths_q[sequence]

    def number(self, name: str) -> int:
        """Return an int that the call gets, or the length that all sequences have room for."""
        return self.x.plan.numbers.get(name, self.x.q.shape[1] if name == "max_seqlen_q" else self.row_size)

    def row(self, sequence: int, key: int) -> int | None:
        """Return the row of a key in the flattened buffer of k; None if the table has none."""
        x = self.x
        if not 0 <= sequence < len(self.lengths_k):
            return None
        if self.form == "varlen":
            return int(x.cu_seqlens_k[sequence]) + key
        if self.form == "padded":
            return sequence * self.row_size + key
        if self.form == "cache":
            return int(x.cache_batch_idx[sequence]) * self.row_size + key
        column = key // self.row_size
        page = int(x.block_table[sequence, column]) if column < x.block_table.shape[1] else -1
        return None if page < 0 else page * self.row_size + key % self.row_size


class Keys(NamedTuple):
    """Keys that a kernel takes for those of one sequence.

    rows: in the flattened buffer of k, or None if it reads outside. offset: how many more keys than
    queries there are for its mask. before: whether it reads the buffer before new keys are written.
    """

    rows: list[int | None]
    offset: int
    before: bool = False


Taken = Callable[[Answer, Buffers, int], Keys | None]  # answer, buffers, number of the sequence -> its keys


def buffers_of(answer: Answer) -> Buffers | None:
    """Return the buffers of an answer's call; None in the forms dense and parts."""
    form, case = answer.impl.supports.form, answer.case
    if form in ("dense", "parts"):
        return None

    def make() -> Buffers:
        x = packed(answer.impl, case, answer.x, NOBODYS)
        after = {"k": x.k.clone(), "v": x.v.clone()}
        if x.k_new is not None:
            x.plan.append(after["k"], x.k_new)
            x.plan.append(after["v"], x.v_new)
        sequences = sequences_of(answer.impl, case, fixed_q=form == "cache")
        return Buffers(
            form, x, after, [one.seqlen_q for one in sequences], [one.seqlen_k for one in sequences],
            appended(case), [n for n, one in enumerate(sequences) if one.judged],
        )  # fmt: skip

    return answer.kept("buffers", make)


def with_keys_of(answer: Answer, taken: Taken) -> tuple[Changed | None, bool] | None:
    """Return the inputs in which each sequence has these keys, and whether they are its own.

    No inputs if some keys lie outside of the buffer, as what is there is not known. None if the
    sequences have the keys already.
    """
    buffers = buffers_of(answer)
    if buffers is None:
        return None
    case, mask = answer.case, answer.variant.mask
    keys = [taken(answer, buffers, n) for n in buffers.judged]
    total = math.prod(buffers.x.k.shape[:-2])
    if any(each is None for each in keys):
        return None
    if any(row is None or not 0 <= row < total for each in keys for row in each.rows):
        return None, False
    # Gather the rows, and hide what each query does not see.
    most = max(len(each.rows) for each in keys)
    seen = torch.zeros(case.batch, 1, case.seqlen_q, most, dtype=torch.bool)
    gathered = {name: [] for name in ("k", "v")}
    for b, each in enumerate(keys):
        seen[b, 0, :, : len(each.rows)] = _seen(mask, case.seqlen_q, len(each.rows), each.offset)
        rows = torch.tensor(each.rows + [0] * (most - len(each.rows)), dtype=torch.long)
        for name in gathered:
            source = getattr(buffers.x, name) if each.before else buffers.after[name]
            gathered[name].append(source.reshape(-1, *source.shape[-2:])[rows])
    k, v = (torch.stack(gathered[name]) for name in ("k", "v"))
    own = torch.equal(k, answer.x.k) and torch.equal(v, answer.x.v)
    if own and bool((seen == mask.visible(case.seqlen_q, case.seqlen_k)).all()):
        return None
    bias = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -math.inf) if most else None
    return Changed(answer.x.with_(k=k, v=v, bias=bias), replace(answer.variant, mask=Mask(), bias=bias)), own


def _seen(mask: Mask, seqlen_q: int, keys: int, offset: int) -> torch.Tensor:
    """Return bool (seqlen_q, keys) under a mask that is aligned by another offset."""
    first, last = mask.bounds(torch.arange(seqlen_q), keys - offset, keys)
    j = torch.arange(keys)
    return (first[:, None] <= j) & (j <= last[:, None])
