"""The cases at hand when a failure is explained: those that fail, those that hold, and a specimen.

The smallest case hides patterns: one query does not show which queries of a tile are wrong, and one
element is any multiple of another. A specimen is a case with the same fields and lengths of two
tiles that fails in the same way. Guesses are made from it, and printed only if they are true for
every case at hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from flash_attest.impls.contract.record import ContractError
from flash_attest.properties.cases.case import Case, CaseError
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.cases.limits import USUAL_TILE, is_slow, two_tiles
from flash_attest.properties.checks import mask_patterns, read_off
from flash_attest.properties.checks.reading import Counts, Guess, Values
from flash_attest.properties.failures import AnotherCase, LawBroken, Undecided, is_out_of_memory
from flash_attest.properties.judging.context import blaming_calls
from flash_attest.properties.judging.judgement import Judgement

FIRST, LAST = 12, 12  # failing cases that are kept: drawn ones, which are large, and the smallest
MOST_RIGHT = 40  # right cases with which a guess is compared
MOST_SECONDS = 3.0  # for a specimen
# The length of a specimen if no tile is declared: one tile of 128, or more of a smaller tile, and a
# part of another that begins elsewhere for each size.
UNKNOWN_TILES = 128 + 64 + 32 + 16 + 8 + 3
COLUMNS = 64  # of a specimen's headdim, so that few calls show which keys have weight
MOST_CALLS = 12  # to show which keys have weight

Failing = tuple[LawBroken, Case]


@dataclass
class AtHand:
    """The cases of one failure.

    failing: cases that fail in the same way, the smallest first, then the specimen if there is one.
    right: cases that hold although they have what the failure needs, lengths aside. specimen: None
    if no larger case fails in the same way.
    """

    failing: list[Failing]
    right: list[Case] = field(default_factory=list)
    specimen: Failing | None = None

    @property
    def pattern(self) -> Failing:
        """The case from which guesses are made: the specimen, or else the smallest case."""
        return self.specimen or self.failing[0]


def some(failures: list[Failing]) -> list[Failing]:
    """Return a bounded number of failures, the first and the last ones."""
    return failures if len(failures) <= FIRST + LAST else failures[:FIRST] + failures[-LAST:]


def same_kind(failure: LawBroken, other: LawBroken) -> bool:
    """Return whether two failures of a law have the same type and the same tensor."""
    tensors = {broken.wrong.tensor if broken.wrong else None for broken in (failure, other)}
    return type(failure) is type(other) and len(tensors) == 1


def at_hand(judgement: Judgement, smallest: Failing, failures: Iterable[Failing], right: Iterable[Case]) -> AtHand:
    """Return the cases at hand for a failure that repeats. A few calls look for a specimen.

    failures, right: what was seen before. Raises ContextLost.
    """
    broken, case = smallest
    others = [(b, c) for b, c in some(list(failures)) if c != case and same_kind(b, broken)]
    grows = broken.reading is not None and not judgement.law.once
    specimen = _specimen(judgement, broken, case) if grows else None
    return AtHand([smallest, *([specimen] if specimen else []), *others], list(right), specimen)


def guesses(judgement: Judgement, cases: AtHand) -> list[str]:
    """Return guesses at the cause that no case at hand contradicts, each in a line."""
    broken, _ = cases.pattern
    if broken.reading is None:
        return []
    readings = [b.reading for b, _ in cases.failing if b.reading is not None and b is not broken]
    right = [judgement.trial(case) for case in cases.right[:MOST_RIGHT]]
    lines: dict[str, list[str]] = {}
    for guess in _of_reading(broken):
        told = [guess.holds(reading) for reading in readings]
        if False in told or told.count(True) + 1 < guess.least or not all(map(guess.is_right, right)):
            continue
        lines.setdefault(guess.words, []).extend([guess.detail] * bool(guess.detail))
    # Mistakes of a mask are alternatives: the simplest one is named, for any of its tiles.
    if isinstance(broken.reading, Counts):
        return [f"{words} ({tiles[0]})" if len(tiles) == 1 else words for words, tiles in lines.items()][:1]
    plain = (["2"], ["1/2"])  # a factor that the words give as a number already
    return [
        f"{words} ({' or '.join(details)})" if details and details not in plain else words
        for words, details in lines.items()
    ]


def _of_reading(broken: LawBroken) -> Iterator[Guess]:
    if isinstance(broken.reading, Values):
        return read_off.guesses(broken.reading)
    return mask_patterns.guesses(broken.reading)


def _specimen(judgement: Judgement, broken: LawBroken, case: Case) -> Failing | None:
    """Return a case of two tiles that fails in the same way, investigated, or None."""
    stop = time.perf_counter() + MOST_SECONDS
    for larger in _larger(judgement, broken, case):
        if time.perf_counter() > stop:
            return None
        try:
            judgement.hold_aside(larger)
        except LawBroken as failure:
            if same_kind(failure, broken):
                if isinstance(failure.reading, Counts) and larger.seqlen_k <= MOST_CALLS * larger.headdim_v:
                    investigate(judgement, failure, larger)
                return failure, larger
        except (AnotherCase, Undecided):
            pass
    return None


def investigate(judgement: Judgement, broken: LawBroken, case: Case) -> tuple[str, list[str]]:
    """Return what the failure's `investigate` finds in further calls. Raises ContextLost."""
    if broken.investigate is None:
        return "", []
    try:
        with blaming_calls(judgement.trial(case), judgement.test):
            return broken.investigate()
    except LawBroken as another:
        judgement.check_context(judgement.trial(case), another)
    except (Undecided, ContractError):
        pass
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return "", []


def _larger(judgement: Judgement, broken: LawBroken, case: Case) -> Iterator[Case]:
    """Yield cases with the same fields and two tiles and a bit, at most three."""
    impl, given = judgement.impl, set()
    slow = is_slow(impl, judgement.device)
    tile = dict(zip(("seqlen_q", "seqlen_k"), impl.tile or USUAL_TILE, strict=True))
    unknown = impl.tile is None and not slow
    two = {name: UNKNOWN_TILES if unknown else two_tiles(n, 2, slow=slow) for name, n in tile.items()}
    longest = dict.fromkeys(two, max(two.values()))
    lengths = longest if case.seqlen_q == case.seqlen_k else longest | {
        "seqlen_k" if case.seqlen_k > case.seqlen_q else "seqlen_q": longest["seqlen_q"] + abs(case.seqlen_k - case.seqlen_q)
    }  # fmt: skip
    same_rest = {name: getattr(case, name) + n for name, n in tile.items()}  # as far behind the end of a tile
    columns = [d for d in impl.supports.headdim_list if case.headdim <= d <= COLUMNS]
    wide = {"headdim": columns[-1]} if columns else {}
    if columns and isinstance(broken.reading, Values):  # 1 / sqrt(headdim) should be no other simple number
        wide = {"headdim": next((d for d in columns if d > 4 and d & (d - 1)), columns[-1])}
    only_q, only_k = {"seqlen_q": lengths["seqlen_q"]}, {"seqlen_k": lengths["seqlen_k"]}
    for changes in (lengths | wide, lengths, same_rest, only_k | wide, only_q | wide):
        try:
            larger = fitted(impl, case.but(**changes), judgement.law.draws)
        except (CaseError, AnotherCase):
            continue
        grown = larger.seqlen_q * larger.seqlen_k > case.seqlen_q * case.seqlen_k
        if grown and larger not in given and len(given) < 3 and str(larger) not in judgement.plan.lost:
            given.add(larger)
            yield larger
