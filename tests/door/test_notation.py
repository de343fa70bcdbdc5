"""The notations of other libraries, against tables that are written by hand."""

import inspect
import math
import re

import pytest
import torch

from flash_attest import notation
from flash_attest.notation import (
    cu_seqlens_of,
    lengths_of,
    packed,
    padded,
    page_lists,
    ragged_offsets,
    rows_of,
    slots_of,
)

# Pages of 4 keys. Sequence 0 has 6 keys on pages 7 and 2, 1 has none, 2 has 8 keys on pages 0 and
# 5, which are full, 3 has 1 key on page 3, 4 has none. Behind them stand free pages and -1.
TABLE = torch.tensor([[7, 2, -1], [6, -1, -1], [0, 5, 6], [3, -1, -1], [-1, -1, -1]], dtype=torch.int32)
LENGTHS = torch.tensor([6, 0, 8, 1, 0], dtype=torch.int32)
CU_SEQLENS = torch.tensor([0, 6, 6, 14, 15, 15], dtype=torch.int32)


def test_lengths_and_their_sums():
    assert lengths_of(CU_SEQLENS).tolist() == LENGTHS.tolist()
    assert torch.equal(cu_seqlens_of(LENGTHS), CU_SEQLENS) and cu_seqlens_of(LENGTHS.long()).dtype == torch.int32
    none = torch.zeros(0, dtype=torch.int32)
    assert cu_seqlens_of(none).tolist() == [0] and lengths_of(cu_seqlens_of(none)).tolist() == []


def test_pages_in_csr_form():
    lists = page_lists(TABLE, LENGTHS, 4)
    assert lists.kv_indptr.tolist() == [0, 2, 2, 4, 5, 5]
    assert lists.kv_indices.tolist() == [7, 2, 0, 5, 3]
    assert lists.kv_last_page_len.tolist() == [2, 0, 4, 1, 0]
    assert {tensor.dtype for tensor in lists} == {torch.int32}


def test_the_lengths_of_the_lists_are_those_that_flashinfer_reads():
    """Its get_seq_lens takes this sum."""
    indptr, _, last = page_lists(TABLE, LENGTHS, 4)
    assert torch.equal((indptr.diff() - 1).clamp(min=0) * 4 + last, LENGTHS)


def test_one_page_of_the_table_for_each_key():
    table = torch.tensor([[9, 4, -1], [1, 2, 3]])
    indptr, indices, last = page_lists(table, torch.tensor([2, 3]), 1)
    assert (indptr.tolist(), indices.tolist(), last.tolist()) == ([0, 2, 5], [9, 4, 1, 2, 3], [1, 1])
    assert slots_of(table, torch.tensor([2, 3]), 1).tolist() == indices.tolist()


def test_slots():
    want = [28, 29, 30, 31, 8, 9, 0, 1, 2, 3, 20, 21, 22, 23, 12]
    assert slots_of(TABLE, LENGTHS, 4).tolist() == want


def test_slots_of_new_keys():
    """Two new keys of each sequence: on a page that they share with old ones, or on the next."""
    before = torch.tensor([3, 0, 4, 2], dtype=torch.int32)
    assert slots_of(TABLE[:4], before + 2, 4, start=before).tolist() == [31, 8, 24, 25, 20, 21, 14, 15]


def test_slots_find_the_keys_of_a_cache():
    cache = torch.arange(8 * 4).view(8, 4)
    keys = cache.flatten()[slots_of(TABLE, LENGTHS, 4)]
    by_hand = [cache[page, place] for row, n in zip(TABLE, LENGTHS, strict=True)
               for page, place in ((row[j // 4], j % 4) for j in range(n))]  # fmt: skip
    assert torch.equal(keys, torch.stack(by_hand))


def test_rows():
    sequence, position = rows_of(CU_SEQLENS, 17)
    assert sequence.tolist() == [0] * 6 + [2] * 8 + [3, -1, -1]
    assert position.tolist() == [*range(6), *range(8), 0, -1, -1]


def test_offsets_in_elements():
    offsets = ragged_offsets(CU_SEQLENS, 3, 128)
    assert offsets.shape == (6, 1, 1, 1) and offsets.flatten().tolist() == [384 * n for n in CU_SEQLENS.tolist()]
    assert ragged_offsets(CU_SEQLENS, 3).flatten().tolist() == [0, 18, 18, 42, 45, 45]
    assert int(ragged_offsets(torch.tensor([0, 2**20], dtype=torch.int32), 32, 128)[1]) == 2**32


def test_packed_and_padded_undo_each_other():
    x = torch.randn(17, 2, 3)
    wide = padded(x, CU_SEQLENS, 9, fill=7.0)
    assert wide.shape == (5, 9, 2, 3)
    assert torch.equal(wide[2, :8], x[6:14]) and bool((wide[2, 8] == 7).all()) and bool((wide[1] == 7).all())
    assert torch.equal(packed(wide, LENGTHS), x[:15])
    assert torch.equal(packed(wide, LENGTHS, total=17), torch.cat([x[:15], torch.zeros(2, 2, 3)]))


def test_padded_lse():
    lse = torch.randn(2, 15)
    wide = padded(lse.mT, CU_SEQLENS, 8, -math.inf).mT
    assert wide.shape == (5, 2, 8) and torch.equal(wide[0, :, :6], lse[:, :6]) and wide[4].max() == -math.inf


def test_gradients_pass():
    x = torch.randn(17, 3, requires_grad=True)
    packed(padded(x, CU_SEQLENS, 8) * 2, LENGTHS).sum().backward()
    assert x.grad[:15].unique().tolist() == [2.0] and x.grad[15:].unique().tolist() == [0.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lengths_of(torch.tensor([1, 2])), "cu_seqlens begins with 1: should begin with 0"),
        (lambda: lengths_of(torch.tensor([0, 3, 2])), "cu_seqlens[2] is 2: should be at least cu_seqlens[1], 3"),
        (lambda: lengths_of(torch.tensor([0.0, 3.0])), "cu_seqlens is float32 of shape (2): should be int32 or int64"),
        (lambda: lengths_of(torch.tensor([], dtype=torch.int32)), "cu_seqlens is empty: should begin with 0"),
        (lambda: cu_seqlens_of(torch.tensor([3, -1])), "lengths[1] is -1: should be 0 or more"),
        (lambda: cu_seqlens_of(torch.tensor([[3]])), "of shape (1, 1): should be int32 or int64 of shape (batch)"),
        (lambda: page_lists(TABLE, LENGTHS[:3], 4), "block_table has 5 rows: should have one for each of 3 lengths"),
        (lambda: page_lists(TABLE, LENGTHS, 0), "page_size is 0: should be 1 or more"),
        (lambda: page_lists(TABLE, LENGTHS, 2),
         "block_table has 3 columns: should have 4, as sequence 2 has 8 keys in pages of 2"),
        (lambda: page_lists(TABLE, LENGTHS + 4, 4),
         "block_table[0, 2] is -1: should be a page, as sequence 0 has keys there"),
        (lambda: slots_of(TABLE, LENGTHS, 4, start=LENGTHS + 1), "start[0] is 7: should be at most lengths[0], 6"),
        (lambda: slots_of(TABLE, LENGTHS, 4, start=LENGTHS[:2]), "start has shape (2): should be (5)"),
        (lambda: rows_of(CU_SEQLENS, 14), "total is 14: should be at least cu_seqlens[-1], 15"),
        (lambda: packed(torch.zeros(4, 9, 2), LENGTHS), "x has shape (4, 9, 2): should be (5, most, ...)"),
        (lambda: packed(torch.zeros(5, 7), LENGTHS), "there is room for 7 rows of each sequence: should be 8 or more"),
        (lambda: packed(torch.zeros(5, 9), LENGTHS, total=14), "total is 14: should be at least 15, the sum"),
        (lambda: padded(torch.zeros(14, 2), CU_SEQLENS, 8), "x has shape (14, 2): should have at least cu_seqlens[-1]"),
        (lambda: padded(torch.zeros(15, 2), CU_SEQLENS, 7), "there is room for 7 rows"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


def test_every_function_is_in_the_table_of_the_docstring():
    functions = {name for name, value in vars(notation).items() if getattr(value, "__module__", "") == notation.__name__
                 and inspect.isfunction(value) and name[0] != "_"}  # fmt: skip
    rows = re.findall(r"^    ([a-z][a-z_, ]+?)  ", notation.__doc__, flags=re.M)
    assert functions == {name for row in rows for name in row.split(", ")}
