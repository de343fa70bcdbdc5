"""Which of PyTorch's operators a call used. An observation, no verdict: who owns the process can hide them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch.autograd.profiler import profile

MOST_NAMES, LONGEST_NAME = 300, 80
SHOWN = 5  # operators that a sentence names
COMPUTES = re.compile(r"mm$|matmul|einsum|softmax|linear|conv")  # what attention may be made of


class Operators:
    """Around a call in the kernel process: `names` are the operators that it used.

    A profiler and no TorchDispatchMode: it sees scaled_dot_product_attention before it is taken apart, sees what C++ code
    calls, and changes nothing for torch.compile.
    """

    def __init__(self):
        self.names: list[str] = []

    def __enter__(self) -> Operators:
        try:
            self._profile = profile(use_kineto=True)
            self._profile.__enter__()
        except Exception:  # the implementation runs a profiler of its own
            self._profile = None
        return self

    def __exit__(self, *error: object) -> None:
        if self._profile is None:
            return
        try:
            self._profile.__exit__(None, None, None)
            events = {event.name() for event in self._profile.kineto_results.events()}
        except Exception:  # the same
            return
        self.names = sorted(name for name in events if "::" in name)[:MOST_NAMES]


@dataclass
class Observed:
    """What the calls of one law used. In the judging process."""

    calls: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    processes: int = 0  # that ended in a call
    _this_call: set[str] = field(default_factory=set)

    def begins(self) -> None:
        """A call begins: a forward, with the backward that may follow."""
        self.calls += 1
        self._this_call = set()

    def used(self, names: object) -> None:
        """Operators of the call in progress, as the kernel process names them: any JSON."""
        if not isinstance(names, list):
            return
        fit = {name[:LONGEST_NAME] for name in names[:MOST_NAMES] if isinstance(name, str)}
        self.operators.update(fit - self._this_call)
        self._this_call |= fit

    def as_dict(self) -> dict:
        """The field `observed` of results.json."""
        return {"calls": self.calls, "operators": dict(sorted(self.operators.items())), "processes": self.processes}


def sentences(results: Iterable[dict]) -> list[tuple[str, str]]:
    """(implementation, what its calls used, in a line) for those of which something was observed."""
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
