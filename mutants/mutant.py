"""A mutant: one of our implementations with one mistake edited into its source, and the law that
must catch it.

Only the edit of a mutant is stored, so it reads as a diff and the implementation needs no switches.
Every snippet that it replaces must occur exactly once in the source, so a mutant that no longer
fits a rewritten implementation is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from flash_attest.impls import Implementation
from flash_attest.places import ROOMS
from flash_attest.properties.cases.case import parse_case, text_of

ROOT = ROOMS
IMPLS = ROOT / "impls"
TRACED = "test_no_race_is_traced"
STREAMS = "test_work_waits_on_the_current_stream"
OUTSIDE = "test_calls_outside_the_promise_raise_or_are_right"
ONE = dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1)
CONTRACT = "test_contract_is_kept"  # not a law: the contract is checked once for each implementation, before the laws


class MutantError(ValueError):
    """A mutant cannot be built. The message names the mutant and the snippet."""


@dataclass(frozen=True, eq=False)
class Family:
    """A kind of source in which mutants are planted, and how an edited source is loaded.

    folder: a mutant's `source` is relative to it. load(mutant, edited text) -> the module with its
    implementations. lacking(mutant) -> what this process lacks to judge the mutant; "" if nothing.
    """

    name: str
    folder: Path
    load: Callable[[Mutant, str], ModuleType]
    lacking: Callable[[Mutant], str] = lambda mutant: ""

    def __repr__(self) -> str:
        return f"Family({self.name})"


@dataclass(frozen=True, eq=False)
class Mutant:
    """One planted bug.

    name: the mistake, in the present tense. law: the law that must catch it, or CONTRACT.
    edits: (old, new) snippets of the source; each old occurs there exactly once.
    smallest: bounds for the fields of the shrunk case: numbers are upper bounds, others are exact.
    story: the real bug that this represents, in a line.
    family, source: the edited file, relative to the family's folder. impl: the implementation.
    declares: fields of the Implementation whose values differ from the original's.
    device: the device on which it shows; "cuda" for a mistake that no CPU can show.
    """

    name: str
    law: str
    edits: tuple[tuple[str, str], ...]
    smallest: Mapping[str, Any]
    story: str
    family: Family
    source: str
    impl: str
    declares: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def __repr__(self) -> str:
        return f"Mutant({self.name})"

    @property
    def file(self) -> Path:
        """The file that the mutant edits."""
        return self.family.folder / self.source


def planted(
    family: Family, name: str, law: str, source: str, edits: tuple, story: str, declares: Mapping[str, Any],
    smallest: Mapping[str, Any] | None = None, *, impl: str, device: str = "cpu",
) -> Mutant:  # fmt: skip
    """Return a mutant. Its name is prefixed with its family's name.

    smallest: the fields in which the shrunk case may exceed ONE.
    """
    return Mutant(
        name=f"{family.name}_{name}",
        law=law,
        family=family,
        source=source,
        impl=impl,
        declares=declares,
        edits=edits,
        smallest=ONE | (smallest or {}),
        story=story,
        device=device,
    )


def edited_source(mutant: Mutant) -> str:
    """Return the source with the mutant's edits.

    Raises MutantError if a snippet does not occur exactly once.
    """
    text = mutant.file.read_text()
    for old, new in mutant.edits:
        if (times := text.count(old)) != 1:
            raise MutantError(
                f"mutant {mutant.name}: the snippet\n{old}\noccurs {times} times in {mutant.file.relative_to(ROOT)}, "
                "should occur once: edit the mutant along with the implementation"
            )
        text = text.replace(old, new)
    return text


@cache  # one object per mutant and process
def build(mutant: Mutant) -> Implementation:
    """Return the mutant as an Implementation called mutant_<name>, from a separate module.
    Tracebacks show its lines.
    """
    module = mutant.family.load(mutant, edited_source(mutant))
    known = {impl.name: impl for impl in getattr(module, "IMPLS", None) or [module.IMPL]}
    if not isinstance(known.get(mutant.impl), Implementation):
        raise MutantError(f"mutant {mutant.name}: {mutant.source} has no implementation called {mutant.impl} here")
    declares = dict(mutant.declares)
    # The build may lack features of the original, which is not a planted bug.
    if "supports" in declares and mutant.law != OUTSIDE:
        declares.setdefault("outside", "undefined")
    return replace(known[mutant.impl], name=f"mutant_{mutant.name}", **declares)


def elsewhere(mutant: Mutant) -> str:
    """Return why a mutant cannot be judged in this process, as a sentence; "" if it can be
    judged.
    """
    if mutant.device == "cuda" and not torch.cuda.is_available():
        return "shows on a GPU only: there is none"
    return mutant.family.lacking(mutant)


def beyond_smallest(mutant: Mutant, shrunk: str) -> list[str]:
    """Return the fields of the shrunk case (as text) that exceed the mutant's bounds, as one
    sentence each.
    """
    case = parse_case(shrunk)
    return [
        f"{name}={text_of(getattr(case, name))}, should be {'at most ' if _is_number(bound) else ''}{text_of(bound)}"
        for name, bound in mutant.smallest.items()
        if not (getattr(case, name) <= bound if _is_number(bound) else getattr(case, name) == bound)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
