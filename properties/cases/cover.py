"""Chooses the classes that each case of a law combines, so that every pair of classes is met soon.

A bug often needs two conditions at once, such as few queries and large scores. If each condition
is drawn by itself, a pair of rare ones may not be met in 60 cases. Here each row contains as many
pairs as possible that no earlier row contains (pairwise testing; Cohen et al. 1997, "The AETG
system"). Details within a class are random.

A strategy draws fields, not classes, so a failing case shrinks field by field. While cases are
generated, the row of a case says which value each field gets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

ATTEMPTS = 4  # rows that are made for each one that is taken


@dataclass(frozen=True, eq=False)
class Factors:
    """The choices of a case that a row determines.

    values: by the name of the factor, the simplest first. rare: how many rows there are for each
    one with another value than the simplest; such values are expensive and form no pairs.
    alone: factors that often have their simplest value, as they may hide mistakes from each other.
    All have it in every second row. Of the three rows between, none has it in the first, and the
    other two divide them.
    impossible: pairs of (factor, value) that no case has.
    details: (row, random numbers) -> further values by name, which follow from the classes.
    """

    values: Mapping[str, tuple]
    rare: Mapping[str, int]
    impossible: Collection[tuple[tuple[str, Any], tuple[str, Any]]] = ()
    details: Callable[[dict[str, Any], Random], dict[str, Any]] = lambda row, random: {}
    alone: Collection[str] = ()


class Dealt(Random):
    """Random numbers whose choices are dealt like cards.

    Each of some values is chosen once before one of them is chosen again, so a rare one comes after
    half as many choices, and never after many.
    """

    def __init__(self, number: float):
        super().__init__(number)
        self._left: dict[tuple, list] = {}

    def choice(self, values: Sequence) -> Any:
        """Return one of the values that are left of these."""
        left = self._left.setdefault(tuple(values), [])
        if not left:
            left += self.sample(values, len(values))
        return left.pop()


class Cover:
    """An endless sequence of rows, which follows from the factors and the random numbers alone.

    Its first rows contain every possible pair. Then it begins again, with other rows.
    """

    def __init__(self, factors: Factors, random: Random):
        self.factors, self.random, self.number = factors, random, random.randrange(1000)
        self.of_details = Dealt(random.random())  # so that details do not change the next rows
        several = {name: values for name, values in factors.values.items() if len(values) > 1}
        self.rare = {name: (rows, several[name][1:]) for name, rows in factors.rare.items() if name in several}
        # Each value of each factor has a bit.
        self.columns: dict[str, list[int]] = {}
        width = 0
        for name in several:
            if name not in self.rare:
                self.columns[name] = list(range(width, width + len(several[name])))
                width += len(several[name])
        self.possible = [0] * width  # for each value, the values that may be in a row with it
        for column in self.columns.values():
            others = ((1 << width) - 1) & ~_bits(column)
            for value in column:
                self.possible[value] = others
        for pair in factors.impossible:
            if all(value in several.get(name, ()) for name, value in pair):
                one, other = (self.columns[name][several[name].index(value)] for name, value in pair)
                self.possible[one] &= ~(1 << other)
                self.possible[other] &= ~(1 << one)
        self.alone = [name for name in self.columns if name in factors.alone]
        self.next_off: list[set[str]] = []  # of the rows of a round
        self.missing: list[int] = []  # for each value, those with which no row has combined it

    def row(self) -> dict[str, Any]:
        """Return the next row: a value of each factor, and what `details` adds."""
        if not any(self.missing):
            self.missing = list(self.possible)
        off = self._off()
        chosen = max((self._attempt(off) for _ in range(ATTEMPTS)), key=self._new)
        together = _bits(chosen.values())
        for value in chosen.values():
            self.missing[value] &= ~together
        row = {name: values[0] for name, values in self.factors.values.items() if values}
        row |= {name: self.factors.values[name][value - self.columns[name][0]] for name, value in chosen.items()}
        self.number += 1
        for name, (rows, values) in self.rare.items():
            if self.number % rows == 0:
                row[name] = self.of_details.choice(values)
        return row | self.factors.details(row, self.of_details)

    def _off(self) -> set[str]:
        """Return the factors of `alone` that have their simplest value in the next row."""
        if not self.alone:
            return set()
        if not self.next_off:
            names = self.random.sample(self.alone, len(self.alone))
            half = len(names) // 2
            self.next_off = [plain := set(names), set(), plain, set(names[:half]), plain, set(names[half:])]
        return self.next_off.pop(0)

    def _attempt(self, off: set[str]) -> dict[str, int]:
        """Return a row of values that each add the most missing pairs, one factor after another.

        off: the factors that have their simplest value, the others of `alone` have another one.
        """
        chosen: dict[str, int] = {}
        together, allowed = 0, -1
        for name in self.random.sample(list(self.columns), len(self.columns)):
            best, most = [], -1
            values = self.columns[name]
            if name in self.alone:
                values = values[:1] if name in off else values[1:]
            for value in values:
                if allowed >> value & 1:
                    gain = (self.missing[value] & together if together else self.missing[value]).bit_count()
                    if gain > most:
                        best, most = [value], gain
                    elif gain == most:
                        best.append(value)
            value = best[int(self.random.random() * len(best))]
            chosen[name] = value
            together |= 1 << value
            allowed &= self.possible[value]
        return chosen

    def _new(self, chosen: Mapping[str, int]) -> int:
        together = _bits(chosen.values())
        return sum((self.missing[value] & together).bit_count() for value in chosen.values())


def _bits(values: Iterable[int]) -> int:
    return sum(1 << value for value in values)


# How many cases are tried before the first one that counts. This is enough to find one if one in
# fifty counts.
FIRST_TRIED = 200


class NoCase(BaseException):
    """No draw gives a case. It is no Exception, which Hypothesis would take for a failure."""


class Course:
    """The cover from which cases are now drawn, and the field that is being drawn."""

    def __init__(self) -> None:
        self._random: Random | None = None
        self._cover: Cover | None = None
        self._field: tuple[Factors, str, tuple | None] | None = None
        self._refused = 0  # draws without a case since the start

    @contextmanager
    def from_the_start(self, number: int) -> Iterator[None]:
        """In this block, cases have the rows of a cover, from its first one."""
        self._random, self._cover, self._refused = Random(number), None, 0
        try:
            yield
        finally:
            self._random = self._cover = None

    def refuse(self) -> None:
        """Count a draw of which no case came. Raises NoCase if there are FIRST_TRIED in a block."""
        self._refused += 1
        if self._refused == FIRST_TRIED and self._random is not None:
            raise NoCase

    def accept(self) -> None:
        """Note that a case was drawn, so that draws go on however many are refused."""
        self._refused = FIRST_TRIED

    @property
    def begun(self) -> bool:
        """Whether a case has had a row. Hypothesis begins with the simplest case, without one."""
        return self._cover is not None

    @contextmanager
    def drawing(self, factors: Factors, name: str, values: tuple | None) -> Iterator[None]:
        """In this block, a field is drawn. values: those it may have; None for an integer."""
        self._field = factors, name, values
        try:
            yield
        finally:
            self._field = None

    def integer(self, row: dict[str, Any]) -> int | None:
        """Return the integer to draw now: a value, or its index in `values`. None if any will do.

        row: the row of the case, or an empty dictionary, into which it is put.
        """
        if self._field is None or self._random is None:
            return None
        factors, name, values = self._field
        if self._cover is None:
            self._cover = Cover(factors, self._random)
        if not row:
            row |= self._cover.row()
        if name not in row or (values is not None and row[name] not in values):
            return None
        return row[name] if values is None else values.index(row[name])


COURSE = Course()
