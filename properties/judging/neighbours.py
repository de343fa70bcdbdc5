"""Tries other lengths of a failing case, and says which are right and which are wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from flash_attest.properties.cases.case import Case, CaseError
from flash_attest.properties.cases.sizes import edges
from flash_attest.properties.cases.strategies import SIDES
from flash_attest.properties.checks.pictures import plural
from flash_attest.properties.failures import AnotherCase, LawBroken, Undecided
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.machine.gpu_memory import when_memory_suffices

SECONDS_OF_LENGTHS = 20.0  # after this time, no further length is tried, as the calls of some laws take seconds
HEADDIMS, SECONDS_OF_HEADDIMS = (32, 64, 96, 128, 256), 5.0  # those that kernels are written for
TILES = (8, 16, 32, 64, 128)
MORE_KEYS = 4  # beyond twice the window
LEAST_RIGHT, LEAST_WRONG = 2, 3  # lengths that show that multiples of a tile are right, and others wrong


@dataclass
class Lengths:
    """The lengths that were tried for some fields. right, wrong: without the case's own.

    fields may be a side of a window, too. of: what its line says of the case. right_cases,
    failures: the cases with these lengths.
    """

    fields: tuple[str, ...]
    at: int
    right: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    cut: str = ""
    right_cases: list[Case] = field(default_factory=list)
    failures: list[tuple[LawBroken, Case]] = field(default_factory=list)
    of: str = ""

    def tiles(self, *, behind: bool) -> list[int]:
        """Return the tiles whose multiples are exactly the lengths that are right.

        behind: lengths up to one tile are right, too: a partial tile is wrong behind full ones.
        """
        return [
            m for m in TILES
            if all(n % m == 0 or (behind and n < m) for n in self.right)
            and all(n % m and not (behind and n < m) for n in (*self.wrong, self.at))
        ]  # fmt: skip

    @property
    def pattern(self) -> str:
        """The right lengths in words; "" if no tile explains them, or more than one."""
        if len(self.right) < LEAST_RIGHT or len(self.wrong) + 1 < LEAST_WRONG:
            return ""
        for behind, words in ((False, "right at multiples of {m}"), (True, "right up to {m} and at multiples of {m}")):
            if len(tiles := self.tiles(behind=behind)) == 1:
                return words.format(m=tiles[0])
        return ""

    @property
    def threshold(self) -> str:
        """The sizes from which on, or up to which, a window is wrong, in words; "" if neither."""
        wrong = [*self.wrong, self.at]
        if self.fields[0] not in SIDES or len(wrong) < 2 or not self.right:
            return ""
        if min(wrong) > max(self.right):
            return f"wrong at {min(wrong)} and more"
        return f"wrong up to {max(wrong)}" if max(wrong) < min(self.right) else ""

    @property
    def line(self) -> str:
        """The line of a message; "" if no other length could be judged."""
        if not self.right and not self.wrong:
            return ""
        name = "seqlen_q = seqlen_k" if len(self.fields) == 2 else self.fields[0]
        words = {"headdim": "other head dims:   "}.get(name, f"other lengths, {name} = n:   ")
        if name in SIDES:
            words = f"other windows{self.of}, {name} = n:   "
        if self.right and self.wrong:
            words += f"right at {_in_order(self.right)}   wrong at {_in_order(self.wrong)}"
        else:
            words += f"{'right' if self.right else 'wrong'} at all of {_in_order(self.right or self.wrong)}"
        return words + (f"   ({pattern})" if (pattern := self.threshold or self.pattern) else "") + self.cut


def neighbours(judgement: Judgement, case: Case, padding: bool) -> list[Lengths]:
    """Judge the case at other lengths: both together if they are equal, else one by one.

    padding: whether keys that do not exist have weight, so that multiples of the tile are looked
    for. Raises ContextLost.
    """
    both = ("seqlen_q", "seqlen_k")
    groups = [both] if case.seqlen_q == case.seqlen_k else [both[:1], both[1:]]
    return [_tried(judgement, case, fields, padding) for fields in groups]


def other_headdims(judgement: Judgement, case: Case) -> list[Lengths]:
    """Judge the case at other head dims, if its own is not the smallest one. Raises ContextLost."""
    known = judgement.impl.supports.headdim_list
    if case.headdim == known[0] or case.headdim_v != case.headdim:
        return []
    tried = Lengths(("headdim",), case.headdim)
    at, stop = known.index(case.headdim), time.perf_counter() + SECONDS_OF_HEADDIMS
    near = {known[0], known[at - 1], *known[at + 1 : at + 2], *(d for d in HEADDIMS if d in known)}
    for d in sorted(near - {case.headdim}, key=lambda d: abs(d - case.headdim)):
        if time.perf_counter() < stop:
            _try(judgement, case, tried, d)
    return [tried]


def other_windows(judgement: Judgement, case: Case) -> list[Lengths]:
    """Judge the case with other sizes of its window, side by side. Raises ContextLost.

    Lengths are longer, if the case still fails there, so that larger windows hide keys, too.
    """
    tried, stop = [], time.perf_counter() + SECONDS_OF_HEADDIMS
    for side, own in zip(SIDES, case.window or (None, None), strict=True):
        if own is None:
            continue
        more = own + MORE_KEYS
        longer = case.but(seqlen_q=case.seqlen_q + more, seqlen_k=case.seqlen_k + more)
        fails = judgement.takes(longer) and isinstance(outcome_of(judgement, longer), LawBroken)
        at = longer if fails else case
        sizes = Lengths((side,), own, of=f" of {plural(at.seqlen_k, 'key')}")
        for n in sorted({*range(4), own - 1, own + 1, own + 2, 2 * own} - {own, -1}):
            if n < at.seqlen_k - 1 and time.perf_counter() < stop:
                window = (n, case.window[1]) if side == "left" else (case.window[0], n)
                _judge(judgement, at.but(window=window), sizes, n)
        tried.append(sizes)
    return tried


def _tried(judgement: Judgement, case: Case, fields: tuple[str, ...], padding: bool) -> Lengths:
    lengths = Lengths(fields, getattr(case, fields[0]))
    stop = time.perf_counter() + SECONDS_OF_LENGTHS
    for n in sorted(_nearby(lengths.at), key=lambda n: abs(n - lengths.at)):
        if time.perf_counter() > stop:
            lengths.cut = f", as many as were tried in {SECONDS_OF_LENGTHS:g} s"
            return lengths
        _try(judgement, case, lengths, n)
    if padding and not lengths.right:
        _try(judgement, case, lengths, TILES[-1])
    # The smallest tile that may explain it is tried, until one is left, and then twice that tile.
    while lengths.right and lengths.wrong and time.perf_counter() < stop:
        tiles = lengths.tiles(behind=False)
        tried = {*lengths.right, *lengths.wrong, lengths.at}
        further = [
            n for n in ([*tiles[:1]] if len(tiles) > 1 else [m * k for m in tiles for k in (1, 2)]) if n not in tried
        ]
        if not further or (len(tiles) == 1 and len(lengths.right) >= LEAST_RIGHT):
            break
        if not _try(judgement, case, lengths, further[0]):
            break
    return lengths


def _try(judgement: Judgement, case: Case, lengths: Lengths, n: int) -> bool:
    """Judge the case at one length. Returns whether it is right or wrong there."""
    try:
        other = case.but(**dict.fromkeys(lengths.fields, n))
    except CaseError:
        return False
    return _judge(judgement, other, lengths, n)


def _judge(judgement: Judgement, other: Case, lengths: Lengths, n: int) -> bool:
    """Judge another case, and put it down as n. Returns whether it is right or wrong."""
    if not judgement.takes(other):
        return False
    outcome = outcome_of(judgement, other)
    if outcome is None:
        lengths.right.append(n)
        lengths.right_cases.append(other)
    elif isinstance(outcome, LawBroken):
        lengths.wrong.append(n)
        lengths.failures.append((outcome, other))
    return outcome is None or isinstance(outcome, LawBroken)


def outcome_of(judgement: Judgement, case: Case) -> Exception | None:
    """Return None if the law holds, else LawBroken, AnotherCase or Undecided.

    Raises ContextLost.
    """
    plan = judgement.plan
    if str(case) in plan.lost:
        return AnotherCase()
    try:
        when_memory_suffices(plan.device, plan.known, lambda: judgement.hold_aside(case))
    except (LawBroken, AnotherCase, Undecided) as outcome:
        return outcome
    return None


def _nearby(at: int) -> set[int]:
    """Return a few short lengths, and lengths next to powers of two from at / 2 to 2 at."""
    return {1, 2, 16, 64, at - 1, at + 1, *edges(2 * at + 2, max(1, at // 2))} - {0, -1, at}


def _in_order(numbers: list[int]) -> str:
    return " ".join(map(str, sorted(numbers)))
