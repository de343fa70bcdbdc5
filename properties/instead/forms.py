"""Mistakes of calls in another form: about the rows and the number of a sequence's keys.

Rows are looked up in the buffers of the call, so that a mistake predicts what neighbours and rows
of nobody add. If they are not a sequence's own, only out, lse and dq are predicted, as other
sequences add to its dk and dv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flash_attest.properties.instead.answer import UNKNOWN, Answer, Predicted
from flash_attest.properties.instead.buffers import Buffers, Keys, Taken, with_keys_of
from flash_attest.properties.instead.inputs import Words
from flash_attest.properties.instead.mistake import Mistake, given, only

OF_QUERIES, OF_KEYS = ("out", "lse", "dq"), ("dk", "dv", "dsink")


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


def _as_queries(answer: Answer, buffers: Buffers, n: int) -> int:
    return buffers.lengths_q[n]


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


def _from_queries(answer: Answer, buffers: Buffers, n: int) -> Keys | None:
    if buffers.form != "varlen":
        return None
    first = int(buffers.x.cu_seqlens_q[n])
    return Keys([first + key for key in range(buffers.lengths_k[n])], buffers.offset(n))


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
    taking("as many keys as queries", "with as many keys in each sequence as it has queries",
           _as_long_as(_as_queries, aligned=True)),
    taking("keys from the queries' start", "with keys from cu_seqlens_q on, in place of cu_seqlens_k", _from_queries),
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
