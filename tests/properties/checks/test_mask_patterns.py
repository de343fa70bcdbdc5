"""Names of mistakes in masks, read off the keys that count."""

import pytest
import torch

from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.checks.mask_patterns import guesses
from flash_attest.properties.checks.reading import Counts

LONG = Case(seqlen_q=251, seqlen_k=251, causal=True)
CROSS = Case(seqlen_q=130, seqlen_k=150, causal=True)
OTHERS = [Case(seqlen_q=n, seqlen_k=n + apart, causal=True) for n, apart in ((1, 0), (2, 3), (17, 20), (70, 0))]


def seen_by(case, alignment="bottom_right"):
    return mask_of(case, alignment).visible(case.seqlen_q, case.seqlen_k, device="cpu")


def reading(case, mistake, measured=True, tile=None):
    """Return what a failing case shows if the implementation makes the mistake."""
    seen = seen_by(case)
    wrong = mistake(seen, torch.arange(case.seqlen_q)[:, None], torch.arange(case.seqlen_k))
    return Counts(case, "bottom_right", tile, seen, wrong.sum(1).double(), wrong if measured else None)


def first_guess(counts):
    return next((f"{g.words} ({g.detail})" if g.detail else g.words for g in guesses(counts)), "")


def one_short(seen, i, j):
    return seen & (j < seen.sum(1, keepdim=True) - 1)


def one_short_in_partial_tiles(seen, i, j):
    return torch.where(i >= len(i) // 64 * 64, one_short(seen, i, j), seen)


MISTAKES = {
    "one short: `<` where `<=` was meant": one_short,
    "one too many: `<=` where `<` was meant": lambda seen, i, j: j < seen.sum(1, keepdim=True) + 1,
    "nothing is masked: all keys count": lambda seen, i, j: torch.ones_like(seen),
    "each group of 4 queries has the bound of its last query": lambda seen, i, j: seen[
        (i[:, 0] // 4 * 4 + 3).clamp(max=len(i) - 1)
    ],
    "key tiles are skipped by what the first query of a query tile sees (tiles of 32 by 16)": lambda seen, i, j: (
        seen & (j // 16 * 16 <= seen.sum(1, keepdim=True)[i[:, 0] // 32 * 32] - 1)
    ),
    "one short: `<` where `<=` was meant in the last query tile, if it is partial (query tile of 64)": (
        one_short_in_partial_tiles
    ),
}


@pytest.mark.parametrize("measured", (True, False), ids=("keys", "counts"))
@pytest.mark.parametrize(("words", "mistake"), MISTAKES.items(), ids=MISTAKES)
def test_a_mistake_is_named(words, mistake, measured):
    assert first_guess(reading(LONG, mistake, measured)) == words


@pytest.mark.parametrize(("words", "mistake"), MISTAKES.items(), ids=MISTAKES)
def test_a_named_mistake_holds_on_its_other_cases_and_not_on_those_of_another(words, mistake):
    (guess, *_) = guesses(reading(LONG, mistake))
    for case in OTHERS:
        for other in MISTAKES.values():
            shown, mine = reading(case, other), reading(case, mistake)
            assert guess.holds(shown) == bool((shown.attended == mine.attended).all())


def test_the_other_alignment_is_named():
    def top_left(seen, i, j):
        return j <= i

    want = 'the mask is aligned top_left: declare causal_alignment="top_left", or shift the mask'
    assert first_guess(reading(CROSS, top_left)) == want
    (guess, *_) = guesses(reading(CROSS, top_left))
    assert guess.holds(reading(Case(seqlen_q=2, seqlen_k=3, causal=True), top_left))
    assert not guess.holds(reading(Case(seqlen_q=2, seqlen_k=3, causal=True), lambda seen, i, j: torch.ones_like(seen)))


WINDOW = Case(seqlen_q=70, seqlen_k=90, window=(20, 9))


def with_window(window, alignment="bottom_right"):
    return lambda seen, i, j: seen_by(WINDOW.but(window=window), alignment)


OF_WINDOWS = {
    "the window is ignored": with_window(None),
    "the window is ignored on the left": with_window((None, 9)),
    "the window is ignored on the right": with_window((20, None)),
    "the window is one key longer on the left": with_window((21, 9)),
    "the window is one key longer on the right": with_window((20, 10)),
    "the window is one key shorter on the left": with_window((19, 9)),
    "the window is one key shorter on the right": with_window((20, 8)),
    'the mask is aligned top_left: declare causal_alignment="top_left", or shift the mask': (
        with_window((20, 9), "top_left")
    ),
    "all keys of the first tile that a query sees count (key tile of 16)": lambda seen, i, j: (
        seen | ((j >= (i + 20 - 20).clamp(min=0) // 16 * 16) & (j < i + 20))
    ),
}


@pytest.mark.parametrize("measured", (True, False), ids=("keys", "counts"))
@pytest.mark.parametrize(("words", "mistake"), OF_WINDOWS.items(), ids=OF_WINDOWS)
def test_a_mistake_in_a_window_is_named(words, mistake, measured):
    assert first_guess(reading(WINDOW, mistake, measured)) == words


def test_a_mistake_on_one_side_of_a_window_says_nothing_about_windows_without_it():
    (guess, *_) = guesses(reading(WINDOW, OF_WINDOWS["the window is one key longer on the left"]))
    right = Case(seqlen_q=7, seqlen_k=7, window=(None, 2))
    assert guess.holds(reading(right, lambda seen, i, j: seen))
    assert not guess.holds(reading(right, lambda seen, i, j: torch.ones_like(seen)))


def test_two_queries_fit_more_than_one_mistake():
    """With one query more than keys, groups of four queries look like the other alignment."""
    of_groups = MISTAKES["each group of 4 queries has the bound of its last query"]
    small, large = Case(seqlen_q=2, seqlen_k=1, causal=True), Case(seqlen_q=131, seqlen_k=130, causal=True)
    assert first_guess(reading(small, of_groups)).startswith("the mask is aligned top_left")
    assert first_guess(reading(large, of_groups)).startswith("each group of 4")
    (hasty, *_) = guesses(reading(small, of_groups))
    assert hasty.holds(reading(large, of_groups)) is False


def test_lse_that_is_wrong_by_itself_names_no_mask():
    """The counts are one short, but every key has weight."""
    seen = seen_by(LONG)
    counts = Counts(LONG, "bottom_right", None, seen, seen.sum(1).double() - 1, attended=seen)
    assert first_guess(counts) == ""


def test_padding_names_no_mask():
    counts = reading(LONG, MISTAKES["one too many: `<=` where `<` was meant"], measured=False)
    counts.padding = True
    assert first_guess(counts) == ""


def test_what_fits_no_mistake_has_no_name():
    odd = seen_by(LONG).clone()
    odd[77, 5] = odd[3, 1] = False
    assert first_guess(Counts(LONG, "bottom_right", None, seen_by(LONG), attended=odd)) == ""


def test_declared_tiles_are_tried():
    def of_tile_48(seen, i, j):
        return torch.where(i >= 48, one_short(seen, i, j), seen)

    assert first_guess(reading(LONG, of_tile_48, tile=(48, 48))).endswith(
        "from the second query tile on (query tile of 48)"
    )
    assert first_guess(reading(LONG, of_tile_48)) == ""


OF_TILES = {
    "one too many: `<=` where `<` was meant, in the tiles that are visited": lambda seen, i, j: (
        (j < seen.sum(1, keepdim=True) + 1) & (j // 64 <= i // 64)
    ),
    "a key tile that begins at the last key of a query tile is skipped: `>=` where `>` was meant": lambda seen, i, j: (
        seen & ((j // 64 * 64 < (i // 64 * 64 + 63).clamp(max=len(i) - 1)) | (j < 64))
    ),
}


@pytest.mark.parametrize(("words", "mistake"), OF_TILES.items(), ids=OF_TILES)
def test_a_mistake_in_tiles_is_named(words, mistake):
    """Other mistakes may fit the same lengths, so that only further lengths tell them apart."""
    first, next_one = (reading(Case(seqlen_q=n, seqlen_k=n, causal=True), mistake, tile=(64, 64)) for n in (129, 193))
    fitting = [guess for guess in guesses(first) if guess.holds(next_one)]
    assert (words, "tiles of 64 by 64") in [(guess.words, guess.detail) for guess in fitting]
