"""Names the mistake behind a wrong mask, by comparing it with masks that have known mistakes.

A pattern is a function of the right mask, so it also says how many keys each query of another case
would see. A guess is made only if that is what the other failing cases count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.checks.reading import MOST_PAIRS, Counts, Guess, Reading
from flash_attest.properties.trial import Trial

TILES = (16, 32, 64, 128, 8)  # if the implementation declares none
GROUPS = (2, 4, 8, 16, 32, 64, 128)  # queries that may share a bound
OTHER = {"bottom_right": "top_left", "top_left": "bottom_right"}


@dataclass(frozen=True)
class Whole:
    """The right mask of one head. seen: bool (sq, sk)."""

    seen: torch.Tensor
    case: Case
    alignment: str

    @property
    def queries(self) -> torch.Tensor:
        return torch.arange(self.seen.shape[0])

    @property
    def keys(self) -> torch.Tensor:
        return torch.arange(self.seen.shape[1])

    @cached_property
    def last(self) -> torch.Tensor:
        """The last key that each query sees, or -1. (sq, 1)"""
        return torch.where(self.seen, self.keys, -1).amax(dim=1, keepdim=True)

    @property
    def next(self) -> torch.Tensor:
        """The key behind the last one that each query sees by the rule of the mask. (sq, 1)"""
        if self.case.bias is not None or self.case.hidden is not None:
            return torch.where(self.last < 0, -1, self.last + 1)
        _, last = mask_of(self.case, self.alignment).bounds(self.queries, *self.seen.shape)
        return last[:, None] + 1

    @cached_property
    def first(self) -> torch.Tensor:
        """The first key that each query sees, or seqlen_k. (sq, 1)"""
        return torch.where(self.seen, self.keys, self.seen.shape[1]).amin(dim=1, keepdim=True)


Mistake = Callable[[Whole], torch.Tensor]  # returns the mask with the mistake, bool (sq, sk)


def guesses(counts: Counts) -> Iterator[Guess]:
    """Yield the mistakes that give exactly the observed keys or counts, the simplest first."""
    if counts.seen is None or not counts.seen.numel() or counts.padding:
        return
    whole = Whole(counts.seen, counts.case, counts.alignment)
    if counts.attended is None and counts.counted is None:
        return
    if counts.attended is not None and bool((counts.attended == whole.seen).all()):
        return  # the keys are right: it is lse that is wrong
    shown = counts.attended if counts.attended is not None else counts.counted
    wrong = (shown != whole.seen).any(1) if counts.attended is not None else shown != whole.seen.sum(1)
    for words, tiles, mistake in _mistakes(counts, whole, wrong):
        if _fits(mistake(whole), counts):
            yield Guess(words, tiles, partial(_holds, mistake), partial(_is_right, mistake))


def _fits(mask: torch.Tensor, counts: Counts) -> bool:
    if counts.attended is not None:
        return bool((mask == counts.attended).all())
    return counts.counted is not None and bool((mask.sum(1) == counts.counted).all())


def _holds(mistake: Mistake, other: Reading) -> bool | None:
    """Return whether the mistake gives what another failing case shows."""
    if not isinstance(other, Counts) or other.seen is None or (other.counted is None and other.attended is None):
        return None
    return _fits(mistake(Whole(other.seen, other.case, other.alignment)), other)


def _is_right(mistake: Mistake, trial: Trial) -> bool:
    """Return whether a case would be right if the implementation made the mistake."""
    case = trial.case
    if case.bias or case.hidden or case.seqlen_q * case.seqlen_k > MOST_PAIRS or not case.seqlen_k:
        return True  # not known
    whole = Whole(trial.visible().cpu(), trial.case, trial.impl.causal_alignment)
    return bool((mistake(whole) == whole.seen).all())


def _mistakes(counts: Counts, whole: Whole, wrong: torch.Tensor) -> Iterator[tuple[str, str, Mistake]]:
    """Yield mistakes with their names and the tiles that they mean, the simplest first.

    wrong: bool (sq,), the queries that count other keys. Mistakes that leave one of them right are
    left out.
    """
    case = counts.case
    queries = counts.tile[:1] if counts.tile else TILES
    keys = counts.tile[1:] if counts.tile else TILES
    if (case.causal or case.window is not None) and case.bias is None:
        other = OTHER[counts.alignment]
        yield (
            f'the mask is aligned {other}: declare causal_alignment="{other}", or shift the mask',
            "",
            lambda w: mask_of(w.case, other).visible(w.case.seqlen_q, w.case.seqlen_k, device="cpu"),
        )
    if case.window is not None and case.bias is None:
        yield from _of_windows(case)
    yield from _effects(keys)
    for size in dict.fromkeys((*queries, *GROUPS)):
        yield f"each group of {size} queries has the bound of its last query", "", _rows_of(size, last=True)
        yield f"each group of {size} queries has the bound of its first query", "", _rows_of(size, last=False)
    for rows in queries:
        for columns in keys:
            tiles = f"tiles of {rows} by {columns}"
            yield (
                "key tiles are skipped by what the first query of a query tile sees",
                tiles,
                lambda w, m=rows, n=columns: w.seen & (w.keys // n * n <= w.last[w.queries // m * m]),
            )
            yield (
                "a key tile that begins at the last key of a query tile is skipped: `>=` where `>` was meant",
                tiles,
                lambda w, m=rows, n=columns: _without_tiles_at_the_end(w, m, n),
            )
            yield (
                "the loop over key tiles ends where top_left alignment would end it",
                tiles,
                lambda w, m=rows, n=columns: w.seen & (w.keys // n * n < (w.queries[:, None] // m + 1) * m),
            )
            yield (
                "one too many: `<=` where `<` was meant, in the tiles that are visited",
                tiles,
                lambda w, m=rows, n=columns: w.seen | ((w.keys == w.next) & (w.keys // n * n < _end(w, m) + 1)),
            )
            yield (
                "no key is masked inside the tiles that the mask crosses",
                tiles,
                lambda w, m=rows, n=columns: _whole_tiles(w.seen, m, n),
            )
    for where, of_queries, of_rows in _some_rows(queries):
        if bool((wrong & ~of_rows(whole)).any()):
            continue
        for words, of_keys, effect in _effects(keys):
            tiles = ", ".join(filter(None, (of_queries, of_keys)))
            yield (
                f"{words} {where}",
                tiles,
                lambda w, e=effect, r=of_rows: torch.where(r(w)[:, None], e(w), w.seen),
            )


def _of_windows(case: Case) -> Iterator[tuple[str, str, Mistake]]:
    """Yield mistakes in the sides of a window, as `_mistakes` does."""

    def changed(*sides: Callable[[int], int | None]) -> Mistake:
        """Return the mask whose window has another size on each side. An open side stays open."""

        def mask(w: Whole) -> torch.Tensor:
            sizes = zip(sides, w.case.window or (None, None), strict=True)
            window = tuple(None if n is None else change(n) for change, n in sizes)
            other = w.case.but(window=None if window == (None, None) else window)
            return mask_of(other, w.alignment).visible(w.case.seqlen_q, w.case.seqlen_k, device="cpu")

        return mask

    def same(n: int) -> int:
        return n

    def ignored(n: int) -> None:
        return None

    def longer(n: int) -> int:
        return n + 1

    def shorter(n: int) -> int:
        return max(0, n - 1)

    left, right = (size is not None for size in case.window)
    yield "the window is ignored", "", changed(ignored, ignored)
    for change, words in ((ignored, "ignored"), (longer, "one key longer"), (shorter, "one key shorter")):
        if left:
            yield f"the window is {words} on the left", "", changed(change, same)
        if right:
            yield f"the window is {words} on the right", "", changed(same, change)


def _effects(tiles: tuple[int, ...]) -> Iterator[tuple[str, str, Mistake]]:
    """Yield mistakes in the keys of a query: words, the tile that they mean, and the mask."""
    yield "one short: `<` where `<=` was meant", "", lambda w: w.seen & (w.keys != w.last)
    yield "one too many: `<=` where `<` was meant", "", lambda w: w.seen | (w.keys == w.next)
    yield "nothing is masked: all keys count", "", lambda w: torch.ones_like(w.seen)
    yield "no key is left", "", lambda w: torch.zeros_like(w.seen)
    yield "the first key is left out", "", lambda w: w.seen & (w.keys != w.first)
    for n in tiles:
        tile = f"key tile of {n}"
        yield (
            "the last tile of keys, if it is partial, is left out",
            tile,
            lambda w, n=n: w.seen & (w.keys < w.seen.shape[1] // n * n),
        )
        yield (
            "the last tile of keys that a query sees is left out",
            tile,
            lambda w, n=n: w.seen & (w.keys < w.last // n * n),
        )
        yield "only the first tile of keys counts", tile, lambda w, n=n: w.seen & (w.keys < n)
        yield "the first tile of keys is left out", tile, lambda w, n=n: w.seen & (w.keys >= n)
        yield (
            "all keys of the last tile that a query sees count",
            tile,
            lambda w, n=n: w.seen | ((w.keys < (w.last // n + 1) * n) & (w.keys > w.last) & (w.last >= 0)),
        )
        yield (
            "the first tile of keys that a query sees is left out",
            tile,
            lambda w, n=n: w.seen & (w.keys >= (w.first // n + 1) * n),
        )
        yield (
            "all keys of the first tile that a query sees count",
            tile,
            lambda w, n=n: w.seen | ((w.keys >= w.first // n * n) & (w.keys < w.first) & (w.last >= 0)),
        )


def _some_rows(tiles: tuple[int, ...]) -> Iterator[tuple[str, str, Callable[[Whole], torch.Tensor]]]:
    """Yield sets of queries: words, the tile that they mean, and what marks them: bool (sq,)."""
    yield "in the last query", "", lambda w: w.queries == len(w.queries) - 1
    yield "in the first query", "", lambda w: w.queries == 0
    for m in tiles:
        for words, rows in _rows_of_tiles(m):
            yield words, f"query tile of {m}", rows


def _rows_of_tiles(m: int) -> Iterator[tuple[str, Callable[[Whole], torch.Tensor]]]:
    yield "in the last query tile, if it is partial", lambda w: w.queries >= _full(w, m)
    yield "in a partial query tile behind full ones", lambda w: (w.queries >= _full(w, m)) & (_full(w, m) > 0)
    yield (
        "in the last query of a partial tile",
        lambda w: (w.queries == len(w.queries) - 1) & (_full(w, m) < len(w.queries)),
    )
    yield (
        "in the last query of a partial tile behind full ones",
        lambda w: (w.queries == len(w.queries) - 1) & (0 < _full(w, m) < len(w.queries)),
    )
    yield "from the second query tile on", lambda w: w.queries >= m
    yield "in the first query tile", lambda w: w.queries < m
    yield "in the last query of each tile", lambda w: w.queries % m == m - 1
    yield "in the first query of each tile", lambda w: w.queries % m == 0


def _full(w: Whole, m: int) -> int:
    """Return the number of queries in full tiles."""
    return len(w.queries) // m * m


def _rows_of(size: int, *, last: bool) -> Mistake:
    """Return the mask in which each query sees what the last, or first, query of its group sees."""

    def mask(w: Whole) -> torch.Tensor:
        start = w.queries // size * size
        return w.seen[(start + size - 1).clamp(max=len(w.queries) - 1) if last else start]

    return mask


def _without_tiles_at_the_end(w: Whole, m: int, n: int) -> torch.Tensor:
    """Return the mask without the key tiles that begin at the last key of a query tile."""
    start = w.keys // n * n
    return w.seen & ((start < _end(w, m)) | (start == 0))


def _end(w: Whole, m: int) -> torch.Tensor:
    """Return the last key that the last query of each query's tile sees, or -1. (sq, 1)"""
    return w.last[(w.queries // m * m + m - 1).clamp(max=len(w.queries) - 1)]


def _whole_tiles(seen: torch.Tensor, m: int, n: int) -> torch.Tensor:
    """Return which tiles of m by n have a visible key, for each of their elements."""
    padded = torch.nn.functional.pad(seen, (0, -seen.shape[1] % n, 0, -seen.shape[0] % m))
    rows, columns = padded.shape[0] // m, padded.shape[1] // n
    some = padded.view(rows, m, columns, n).any(dim=3).any(dim=1)
    return some.repeat_interleave(m, 0).repeat_interleave(n, 1)[: seen.shape[0], : seen.shape[1]]
