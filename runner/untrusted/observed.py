"""Observes which PyTorch operators a call used.

This is not a verdict: code in the same process can hide operators.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch.autograd.profiler import profile

MOST_NAMES, LONGEST_NAME = 300, 80
SHOWN = 5  # operators that a sentence names
COMPUTES = re.compile(r"mm$|matmul|einsum|softmax|linear|conv")  # operators that attention may be composed of


class Operators:
    """Wraps a call in the kernel process. `names` are the operators that it used.

    This is a profiler and not a TorchDispatchMode: it sees scaled_dot_product_attention before it
    is decomposed, sees what C++ code calls, and changes nothing for torch.compile.
    """

    def __init__(self):
        self.names: list[str] = []

    def __enter__(self) -> Operators:
        try:
            self._profile = profile(use_kineto=True)
            self._profile.__enter__()
        except Exception:  # the implementation runs its own profiler
            self._profile = None
        return self

    def __exit__(self, *error: object) -> None:
        if self._profile is None:
            return
        try:
            self._profile.__exit__(None, None, None)
            events = {event.name() for event in self._profile.kineto_results.events()}
        except Exception:  # its own profiler, again
            return
        self.names = sorted(name for name in events if "::" in name)[:MOST_NAMES]


@dataclass
class Observed:
    """The operators that the calls of one law used. This object belongs to the judging process."""

    calls: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    processes: int = 0  # how many processes ended in a call
    _this_call: set[str] = field(default_factory=set)

    def begins(self) -> None:
        """Record that a call begins: a forward, with the backward that may follow."""
        self.calls += 1
        self._this_call = set()

    def used(self, names: object) -> None:
        """Add operators of the call in progress. names: any JSON that the kernel process sent."""
        if not isinstance(names, list):
            return
        valid = {name[:LONGEST_NAME] for name in names[:MOST_NAMES] if isinstance(name, str)}
        self.operators.update(valid - self._this_call)
        self._this_call |= valid

    def as_dict(self) -> dict:
        """Return the field `observed` of results.json."""
        return {"calls": self.calls, "operators": dict(sorted(self.operators.items())), "processes": self.processes}


def sentences(results: Iterable[dict]) -> list[tuple[str, str]]:
    """Return (implementation, a line on what its calls used) for each one observed."""
    records: dict[str, list[dict]] = {}
    for result in results:
        if result.get("observed", {}).get("calls"):
            records.setdefault(result["impl"], []).append(result["observed"])
    return [(impl, _sentence(each)) for impl, each in sorted(records.items())]


def _sentence(records: list[dict]) -> str:
    calls, operators = 0, Counter()
    for record in records:
        calls += record["calls"]
        operators.update(record["operators"])
    attention = [name for name in operators if "attention" in name.lower()]
    named = sorted(attention or [name for name in operators if COMPUTES.search(name)])[:SHOWN]
    each = ", ".join(f"{name.partition('::')[2]}: {operators[name]} of {calls} calls" for name in named)
    if attention:
        return f"calls {each}"
    return f"calls no attention of PyTorch{f', but {each}' if each else ''}"
