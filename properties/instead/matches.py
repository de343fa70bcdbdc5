"""Says which mistake, or which rounding, explains everything that is wrong in the failing cases.

A statement is made only if it holds on every failing case tried, and if the right definition does
not. The smallest case fits many mistakes: with one key most of them are equal. So larger cases are
tried, too: the same fields with two tiles of queries and keys, several heads, and a head dim whose
root is no simple number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from flash_attest.impls.contract.record import GRADIENTS
from flash_attest.properties.instead.answer import CLEARLY, UNKNOWN, Answer
from flash_attest.properties.instead.gradients import base
from flash_attest.properties.instead.mistake import Mistake
from flash_attest.properties.instead.table import TABLE
from flash_attest.texts import all_of

SIZE = re.compile(r"(?<=tile of )\d+|(?<=multiple of )\d+")
MOST_STATEMENTS = 2  # about different outputs
FEWEST_KNOWN = 2  # answers that a mistake explains, where it cannot be predicted in others
MOST_MISTAKES = 2  # that fit alike; if more do, nothing is said


class Fits:
    """The outputs of one wrong answer that each mistake explains."""

    def __init__(self, answer: Answer, table: Iterable[Mistake]):
        self.answer, self.wrong = answer, set(answer.wrong)
        self.of: dict[str, set[str]] = {}  # mistake -> outputs, right ones included
        self.unknown: set[str] = set()  # mistakes whose outputs in this case are not known
        gradients = {name for name in answer.got if name in GRADIENTS}
        # The gradients of out and lse as they were returned: the backward makes no mistake.
        self.follows = set()
        if self.wrong & gradients and self.wrong - gradients:
            self.follows = set(answer.fits(base(answer), sorted(self.wrong & gradients)))
        for mistake in table:
            self.of[mistake.name] = self._explained(mistake)

    def _explained(self, mistake: Mistake) -> set[str]:
        found: set[str] = set()
        for predicted in mistake.predict(self.answer):
            if predicted is UNKNOWN:
                self.unknown.add(mistake.name)
            names = [name for name in self.answer.got if name in predicted.want]
            if self.wrong & {*names}:
                fit = self.answer.fits(predicted, names, explains=True)
                if self.wrong & {*fit}:
                    found |= {*fit}
        return found


def statements(
    answers: Iterable[Answer],
    right: Iterable[Answer] = (),
    table: tuple[Mistake, ...] = TABLE,
    shown: Answer | None = None,
) -> list[str]:
    """Return what the kernel computed instead, in at most two sentences; [] if nothing fits.

    answers: the wrong ones, the largest case first: only what it shows is named. right: right
    answers of similar cases. If few elements are wrong, a mistake must not contradict these.
    shown: the one of whose case the sentences speak, by default the last.
    """
    fits: list[Fits] = []
    for answer in answers:
        if not (answer.telling or answer.comparable):
            return []
        fits.append(Fits(answer, table))
        table = tuple(m for m in table if fits[0].of[m.name] or m.name in fits[0].unknown)
        if not table:
            return []
    if all(each.answer.dead for each in fits) or not any(each.answer.telling for each in fits):
        return []
    table = tuple(mistake for mistake in table if not _differs(fits, mistake))
    if fits and not any(each.answer.strong for each in fits):
        if max(max(each.answer.wrong.values()) for each in fits) < CLEARLY:
            return []
        right = tuple(right)
        table = tuple(m for m in table if not any(_contradicts(answer, m) for answer in right))
    return list(_sentences(fits, table, shown or fits[-1].answer))[:MOST_STATEMENTS] if fits else []


def _differs(fits: list[Fits], mistake: Mistake) -> bool:
    """Return whether a mistake explains an output in one answer, and not in another."""
    explained = set().union(*(each.of[mistake.name] & each.wrong for each in fits))
    known = (each for each in fits if mistake.name not in each.unknown)
    return any(explained & each.wrong - each.of[mistake.name] for each in known)


def _contradicts(answer: Answer, mistake: Mistake) -> bool:
    predictions = list(mistake.predict(answer))
    return bool(predictions) and all(answer.contradicts(predicted) for predicted in predictions)


def _sentences(fits: list[Fits], table: tuple[Mistake, ...], shown: Answer) -> Iterator[str]:
    left = {name for name in fits[0].wrong if not all(name in each.follows for each in fits if name in each.wrong)}
    while left:
        ranked = sorted(((*_rank(fits, mistake, left), n) for n, mistake in enumerate(table)), reverse=True)
        if not ranked or not ranked[0][0]:
            return
        best = [table[n] for *rank, n in ranked if rank == list(ranked[0][:-1])][::-1]
        covered = _covered(fits, best[0], left)
        best = [mistake for mistake in best if _covered(fits, mistake, left) == covered]
        left -= covered
        right = not any({"out", "lse"} & each.wrong for each in fits)
        words = _merged([m.said(shown) + (m.in_backward if right else "") for m in best])
        if len(words) <= MOST_MISTAKES:
            names = [name for name in fits[0].answer.got if name in covered]
            yield f"{all_of(names)} {'are the ones' if len(names) > 1 else 'is the one'} {', or '.join(words)}"


def _covered(fits: list[Fits], mistake: Mistake, left: set[str]) -> set[str]:
    """Return the outputs that a mistake explains in every answer in which they are wrong."""
    known = [each for each in fits if mistake.name not in each.unknown]
    return {
        name
        for name in left
        if len(known) >= min(FEWEST_KNOWN, len(fits))
        and all(name in each.of.get(mistake.name, ()) for each in known if name in each.wrong)
    }


def _rank(fits: list[Fits], mistake: Mistake, left: set[str]) -> tuple[int, int]:
    """Return how many wrong outputs, and how many right ones, a mistake explains."""
    right = sum(len(each.of.get(mistake.name, set()) - each.wrong) for each in fits)
    return len(_covered(fits, mistake, left)), right


def _merged(words: list[str]) -> list[str]:
    """Return the words of several mistakes, where those that differ in a tile's size are one."""
    sizes: dict[str, list[str]] = {}
    for each in words:
        found = SIZE.search(each)
        sizes.setdefault(SIZE.sub("#", each, count=1), []).append(found[0] if found else "")
    return [text.replace("#", _either(numbers), 1) for text, numbers in sizes.items()]


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
