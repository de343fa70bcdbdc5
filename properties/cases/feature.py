"""Feature: the record of one feature of attention. features.py has a table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flash_attest.impls.contract.supports import Supports
from flash_attest.properties.cases.case import Case


class Part(Enum):
    """The record of the oracle that takes the feature as an argument."""

    MASK = "mask"
    VARIANT = "variant"


@dataclass(frozen=True)
class Need:
    """A need of a law: the implementation takes one of these values. If not, `reason` is shown."""

    values: tuple
    reason: str


@dataclass(frozen=True)
class Feature:
    """One feature of attention.

    name: the name in laws and tables.
    values: the values to draw, the simplest first.
    takes: (supports, value) -> whether an implementation with this declaration takes the value.
    words: value -> the value in the words of messages: "bias vector".
    of: case -> its value; by default the field of a case that has the feature's name.
    with_value: (case, value) -> the case with that value; by default that field is changed.
    declare: how `Supports` declares it, as documentation shows it.
    neutral: the value that turns the feature off; also None if there is no such value.
    unnamed: the values that a law gets if it does not name the feature; None means all.
    together: whether the value is drawn together with others in a single draw. strategies.py draws
    the other features one by one.
    alone: whether every second case lacks it. The others have all of these features, or half of
        them (cover.py).
    part: whether the field of a case that has the feature's name is an argument of oracle.Mask or
        of oracle.Variant. Bias and sinks, which are tensors, are passed separately.
    advice: how to declare an implementation that does not take the keyword.
    adapted: (case with a value, supports) -> the case with details that are declared; by default
        the case itself.
    needs: the needs that laws may have of this feature, by name.
    tried: the values that the contract check tries, one by one.
    mistaken: what kernels compute instead: (name, words after "out is the one", case -> the case
        that a kernel mistakes it for, or None). {window} in the words is the window of that case,
        and likewise for its other fields. Messages name what fits (properties/instead).
    """

    name: str
    values: tuple
    takes: Callable[[Supports, Any], bool]
    words: Callable[[Any], str]
    of: Callable[[Case], Any] | None = None
    with_value: Callable[[Case, Any], Case] | None = None
    adapted: Callable[[Case, Supports], Case] = lambda case, supports: case
    declare: str = ""
    neutral: Any = None
    unnamed: tuple | None = None
    together: bool = False
    alone: bool = False
    part: Part | None = None
    advice: str = ""
    needs: Mapping[str, Need] = field(default_factory=dict)
    tried: tuple = ()
    mistaken: tuple[tuple[str, str, Callable[[Case], Case | None]], ...] = ()

    def value(self, case: Case) -> Any:
        """Return the value that a case has."""
        return self.of(case) if self.of else getattr(case, self.name)

    def changed(self, case: Case, value: Any) -> Case:
        """Return the case with another value."""
        return self.with_value(case, value) if self.with_value else case.but(**{self.name: value})

    def wanted(self, want: Any) -> tuple:
        """Return the values that a law wants.

        True means every value except the neutral one, False means only the neutral one.
        """
        if isinstance(want, tuple):
            return want
        if want is True:
            return tuple(value for value in self.values if value != self.neutral)
        return (self.neutral,) if want is False else (want,)

    def drawn(self, supports: Supports, wanted: tuple | None) -> tuple:
        """Return the values to draw for an implementation and a law, the simplest first."""
        if wanted is None:
            wanted = self.values if self.unnamed is None else self.unnamed
        return tuple(value for value in wanted if self.takes(supports, value))
