"""Mistakes of calls in another form: about the rows and the number of a sequence's keys.

Rows are looked up in the buffers of the call, so that a mistake predicts what neighbours and rows
of nobody add. If they are not a sequence's own, only out, lse and dq are predicted, as other
sequences add to its dk and dv.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from flash_attest.impls.contract.call import Inputs
from flash_attest.oracle import Mask
from flash_attest.properties.calling.caller import NOBODYS
from flash_attest.properties.forms import packed
from flash_attest.properties.forms.sequences import appended, sequences_of
from flash_attest.properties.instead.answer import UNKNOWN, Answer, Changed, Predicted
from flash_attest.properties.instead.inputs import Words
from flash_attest.properties.instead.mistake import Mistake, given, only

OF_QUERIES, OF_KEYS = ("out", "lse", "dq"), ("dk", "dv", "dsink")


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


def taking(name: str, words: Words, *taken: Taken) -> Mistake:
    """Return the mistake of taking other rows for the keys of a sequence, in one way or another."""

    def predict(answer: Answer) -> Iterator[Predicted]:
        for each in taken:
            if (found := with_keys_of(answer, each)) is None:
                continue
            changed, own = found
            if changed is None:
                yield UNKNOWN
                continue
            names = (*OF_QUERIES, *OF_KEYS) if own else OF_QUERIES
            yield only(answer.under(changed), *names)
            if (backward := given(answer, changed)) is not None:
                yield only(backward, *names)

    return Mistake(name, words, predict)


# --- the mask and the length ----------------------------------------------------------------------


def _own_rows(buffers: Buffers, n: int, count: int | None = None) -> list[int | None]:
    return [buffers.row(n, key) for key in range(buffers.lengths_k[n] if count is None else count)]


def _aligned_by(*names: str) -> Taken:
    """Align the mask by max_seqlen_q, max_seqlen_k or both, and take the sequence's own keys."""

    def taken(answer: Answer, buffers: Buffers, n: int) -> Keys:
        lengths = {"max_seqlen_q": buffers.lengths_q[n], "max_seqlen_k": buffers.lengths_k[n]}
        lengths |= {name: buffers.number(name) for name in names}
        return Keys(_own_rows(buffers, n), lengths["max_seqlen_k"] - lengths["max_seqlen_q"])

    return taken


def _as_long_as(length: Callable[[Answer, Buffers, int], int | None], aligned: bool) -> Taken:
    """Take another number of keys for a sequence's length. aligned: whether its mask does, too."""

    def taken(answer: Answer, buffers: Buffers, n: int) -> Keys | None:
        count = length(answer, buffers, n)
        if count is None or count == buffers.lengths_k[n]:
            return None
        return Keys(_own_rows(buffers, n, count), (count if aligned else buffers.lengths_k[n]) - buffers.lengths_q[n])

    return taken


def _longest(answer: Answer, buffers: Buffers, n: int) -> int:
    return buffers.number("max_seqlen_k")


def _whole_pages(answer: Answer, buffers: Buffers, n: int) -> int | None:
    size = buffers.row_size
    return -(-buffers.lengths_k[n] // size) * size if buffers.form == "paged" else None


def _of_the_next(answer: Answer, buffers: Buffers, n: int) -> int | None:
    return buffers.lengths_k[n + 1] if n + 1 < len(buffers.lengths_k) else None


def _most_words(answer: Answer) -> str:
    return {
        "padded": "with all rows of k as keys, whatever seqused_k is",
        "cache": "with all rows of a slot as keys, whatever cache_seqlens is",
    }.get(answer.impl.supports.form, "with max_seqlen_k keys in each sequence")


def _aligned_words(*names: str) -> Callable[[Answer], str]:
    def words(answer: Answer) -> str:
        rows = {"max_seqlen_q": "the number of rows of q", "max_seqlen_k": "the number of rows of k"}
        if answer.impl.supports.form == "cache":
            rows["max_seqlen_k"] = "the capacity of the cache"
        kept = answer.impl.supports.form in ("varlen", "paged")
        return f"with the mask aligned by {' and '.join(name if kept else rows[name] for name in names)}"

    return words


# --- the rows -------------------------------------------------------------------------------------


def _of_sequence(other: Callable[[int], int]) -> Taken:
    """Take the rows of another sequence, with this one's length."""

    def taken(answer: Answer, buffers: Buffers, n: int) -> Keys:
        rows = [buffers.row(other(n), key) for key in range(buffers.lengths_k[n])]
        return Keys(rows, buffers.offset(n))

    return taken


def _slot_of_batch(answer: Answer, buffers: Buffers, n: int) -> Keys | None:
    if buffers.form != "cache" or buffers.new:
        return None
    rows = [n * buffers.row_size + key for key in range(buffers.lengths_k[n])]
    return Keys(rows, buffers.offset(n))


def _in_pages(row: Callable[[Buffers, int, int], int]) -> Taken:
    """Take rows by another reading of the table. row(buffers, sequence, key)."""

    def taken(answer: Answer, buffers: Buffers, n: int) -> Keys | None:
        if buffers.form != "paged":
            return None
        rows = [row(buffers, n, key) for key in range(buffers.lengths_k[n])]
        return Keys(rows, buffers.offset(n))

    return taken


def _from_the_first_page(buffers: Buffers, n: int, key: int) -> int:
    return int(buffers.x.block_table[n, 0]) * buffers.row_size + key


def _without_a_table(buffers: Buffers, n: int, key: int) -> int:
    before = sum(-(-length // buffers.row_size) for length in buffers.lengths_k[:n])
    return before * buffers.row_size + key


def _entry_as_a_row(buffers: Buffers, n: int, key: int) -> int:
    return int(buffers.x.block_table[n, key // buffers.row_size]) + key % buffers.row_size


# --- new keys -------------------------------------------------------------------------------------


def _without_new(*, aligned: bool) -> Taken:
    def taken(answer: Answer, buffers: Buffers, n: int) -> Keys | None:
        count, offset = buffers.lengths_k[n] - buffers.new, buffers.offset(n)
        return Keys(_own_rows(buffers, n, count), offset - buffers.new * aligned) if buffers.new else None

    return taken


def _before_new(answer: Answer, buffers: Buffers, n: int) -> Keys | None:
    return Keys(_own_rows(buffers, n), buffers.offset(n), before=True) if buffers.new else None


def _aligned_before_new(answer: Answer, buffers: Buffers, n: int) -> Keys | None:
    return Keys(_own_rows(buffers, n), buffers.offset(n) - buffers.new) if buffers.new else None


RAGGED = (
    taking("aligned by both lengths", _aligned_words("max_seqlen_q", "max_seqlen_k"),
           _aligned_by("max_seqlen_q", "max_seqlen_k")),
    taking("aligned by max_seqlen_k", _aligned_words("max_seqlen_k"), _aligned_by("max_seqlen_k")),
    taking("aligned by max_seqlen_q", _aligned_words("max_seqlen_q"), _aligned_by("max_seqlen_q")),
    taking("as many keys as the longest", _most_words, _as_long_as(_longest, aligned=True),
           _as_long_as(_longest, aligned=False)),
    taking("whole pages", "with the whole last page as keys", _as_long_as(_whole_pages, aligned=False),
           _as_long_as(_whole_pages, aligned=True)),
    taking("as many keys as the next", "with as many keys as the next sequence has", _as_long_as(_of_the_next, aligned=True)),
    taking("keys of the next sequence", "with k and v of the next sequence", _of_sequence(lambda n: n + 1)),
    taking("keys of the previous sequence", "with k and v of the previous sequence", _of_sequence(lambda n: n - 1)),
    taking("keys of the first sequence",
           lambda answer: "with the pages in row 0 of block_table" if answer.impl.supports.form == "paged"
           else "with k and v of the first sequence", _of_sequence(lambda n: 0)),
    taking("slot of the batch", "with slot b of the cache, in place of cache_batch_idx[b]", _slot_of_batch),
    taking("pages in order", "with pages one behind the other from the first one of block_table on",
           _in_pages(_from_the_first_page)),
    taking("no table", "with pages in order, as if block_table counted them", _in_pages(_without_a_table)),
    taking("page as a row", "with the numbers in block_table as rows, not as pages", _in_pages(_entry_as_a_row)),
    taking("no new keys", "without the new keys", _without_new(aligned=True), _without_new(aligned=False)),
    taking("before new keys", "with what the cache held before the new keys were written", _before_new),
    taking("aligned before new keys", "with the mask aligned by the keys without the new ones", _aligned_before_new),
)  # fmt: skip
