"""Counts of visible keys, and the part of a message that says which keys a query attends to."""

import math

import pytest
import torch

from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.counts import check_counts
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial
from tests.trials import broken, implementation, lines

INF, NAN = math.inf, math.nan
KEYS = 70
SHOULD_SEE = torch.tensor([1, 2, 3, 4, 65])  # how many of the first keys each query should see
SEEN = torch.arange(KEYS) < SHOULD_SEE[:, None]  # (sq, sk)


def counting(last_sees: torch.Tensor | None = None, lse: float | None = None) -> Trial:
    """Return a trial in which the last query of the last head and batch sees other keys or has
    another lse.
    """

    def forward(q, k, v):
        seen = SEEN.expand(2, 3, -1, -1).clone()
        if last_sees is not None:
            seen[1, 2, 4] = last_sees
        s = torch.zeros(2, 3, 5, KEYS).masked_fill(~seen, -INF)
        sums = s.logsumexp(-1)
        if lse is not None:
            sums[1, 2, 4] = lse
        return torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v), sums

    c = Case(batch=2, seqlen_q=5, seqlen_k=KEYS, nheads=3, nheads_k=3, headdim=8)
    return Trial(implementation(forward, lse="natural"), c, "cpu")


def miscounted(last_sees: torch.Tensor | None = None, lse: float | None = None) -> LawBroken:
    t = counting(last_sees, lse)
    return broken(check_counts, t, t.zeroed("q"), SEEN)


def first(n: int) -> torch.Tensor:
    return torch.arange(KEYS) < n


def test_correct_counts_pass():
    t = counting()
    check_counts(t, t.zeroed("q"), SEEN)


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (64, "query 4 sees 64 keys, should see 65"),
        (1, "query 4 sees 1 key, should see 65"),
        (0, "query 4 sees 0 keys, should see 65"),
        (66, "query 4 sees 66 keys, should see 65"),
    ],
)
def test_a_wrong_count_is_reported(n, words):
    assert miscounted(first(n)).headline == words


@pytest.mark.parametrize(("lse", "shown"), [(NAN, "nan"), (INF, "inf"), (1000.0, "inf")])
def test_a_count_that_is_not_finite_is_reported(lse, shown):
    """lse is NaN or far too large, so exp(lse) is not finite."""
    assert miscounted(lse=lse).headline == f"query 4 sees {shown} keys, should see 65"


def test_a_wrong_count_is_located_by_batch_and_head():
    shown = lines("\n".join(miscounted(first(64)).observed))
    assert "batch 1 of 0..1" in shown and "head 2 of 0..2" in shown and "query 4 of 0..4" in shown


@pytest.mark.parametrize(
    ("sees", "phrase"),
    [
        (first(64), "key 64 is missing"),
        (first(63), "keys 63..64 are missing"),
        (first(66), "key 65 is extra"),
        (first(68) & (torch.arange(KEYS) != 7), "key 7 is missing, keys 65..67 are extra"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_missing_and_extra_keys_are_listed(sees, phrase):
    assert miscounted(sees).investigate()[0] == phrase


def test_the_picture_marks_attended_masked_and_missing_keys():
    _, (legend, keys, *rows) = miscounted(first(64)).investigate()
    assert legend == "1 attended   0 masked   . missing   ! extra"
    assert keys.split() == ["key", *map(str, range(58, 70))]
    assert [" ".join(row.split()) for row in rows[-2:]] == [
        "query 3 0 0 0 0 0 0 0 0 0 0 0 0",
        "query 4 1 1 1 1 1 1 . 0 0 0 0 0",
    ]


def test_the_picture_has_its_full_width_at_the_last_key():
    _, (_, keys, *_) = miscounted(first(65) | (torch.arange(KEYS) == 69)).investigate()
    assert keys.split() == ["key", *map(str, range(58, 70))]


def test_the_picture_has_aligned_columns():
    _, (_, keys, *rows) = miscounted(first(66)).investigate()
    assert {len(row) for row in rows} == {len(keys)}
    assert rows[-1][keys.index("65") + 1] == "!"


@pytest.mark.parametrize("sees", [66, 40])
def test_a_count_that_no_key_explains_has_no_picture(sees):
    """lse is wrong but out is correct, so every query attends to the right keys."""
    failure = miscounted(lse=math.log(sees))
    assert failure.headline == f"query 4 sees {sees} keys, should see 65"
    assert failure.investigate() == ("out has the right keys, so lse itself is wrong", [])
