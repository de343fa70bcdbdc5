"""Numbers, plurals, names of elements, and positions of wrong elements in messages."""

import re

import pytest
import torch

from flash_attest.properties.checks.pictures import element_at, plural, ranges, where
from tests.trials import lines, trial


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([4], "4"),
        ([1, 2, 3, 7], "1..3 7"),
        ([0, 2, 4, 6, 8, 10, 12, 14], "0 2 4 6 8 10 12 14"),
        ([0, 2, 4, 6, 8, 10, 12, 14, 16], "0 2 4 6 8 10 12 14 ..."),
    ],
)
def test_ranges_are_short(numbers, text):
    assert ranges(numbers) == text


def test_plurals_follow_the_count():
    assert [plural(n, "key") for n in (0, 1, 2)] == ["0 keys", "1 key", "2 keys"]


@pytest.mark.parametrize(
    ("name", "at", "text"),
    [
        ("out", (0, 64, 0, 3), "out[b=0 i=64 h=0 d=3]"),
        ("dk", (0, 64, 0, 3), "dk[b=0 j=64 h=0 d=3]"),
        ("lse", (0, 1, 64), "lse[b=0 h=1 i=64]"),
        ("dbias", (0, 1, 2, 3), "dbias[b=0 h=1 i=2 j=3]"),
        ("block_table", (3, 1), "block_table[b=3 column=1]"),
    ],
)
def test_elements_are_named_by_their_axes(name, at, text):
    assert element_at(name, at) == text


def wrong(*at) -> torch.Tensor:
    bad = torch.zeros(2, 130, 3, 8, dtype=torch.bool)
    bad[at] = True
    return bad


def test_where_names_every_axis():
    shown = lines(where(trial(), "out", wrong(1, slice(64, 128))))
    assert shown == [
        "wrong in",
        "batch 1 of 0..1",
        "query 64..127 of 0..129",
        "head all of 0..2",
        "column all of 0..7",
    ]


def test_where_names_keys_for_dk():
    assert "key 5 of 0..129" in lines(where(trial(), "dk", wrong(0, 5)))


def test_where_counts_queries_by_declared_tile():
    shown = lines(where(trial(tile=(64, 32)), "out", wrong(0, slice(60, 65))))
    assert [line for line in shown if "full" in line or "partial" in line] == [
        "0 0..63 full 4 of 64",
        "1 64..127 full 1 of 64",
        "2 128..129 partial 0 of 2",
    ]
    assert any("BLOCK_M=64" in line for line in shown)


def test_where_counts_keys_by_block_n():
    shown = lines(where(trial(tile=(64, 32)), "dv", wrong(0, 129)))
    assert any("BLOCK_N=32" in line for line in shown) and "4 128..129 partial 1 of 2" in shown


def test_a_long_tile_table_shows_both_ends():
    bad = torch.zeros(1, 1, 1000, dtype=torch.bool)
    bad[..., -1] = True
    shown = lines(where(trial(tile=(16, 16)), "lse", bad))
    tiles = [line.split()[0] for line in shown if re.match(r"\d+ |\.\.\.", line)]
    assert tiles == ["0", "1", "2", "...", "59", "60", "61", "62"]
