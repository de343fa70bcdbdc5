"""The seconds of a law. Every moment is counted once, as one kind of work."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from flash_attest.emulator import build_cache
from flash_attest.properties.progress import NOW

build_cache.while_compiling = NOW.compiling  # a call may take longer while something compiles


class Work(Enum):
    """A kind of work, by its name in the report."""

    # Compiling inside an implementation, if its compiler reports it, and waiting for another worker
    # that compiles.
    COMPILING = "compiling"
    RUNNING = "running"  # everything else inside an implementation
    ORACLE = "oracle"
    BUDGET = "budget"  # the budget, and comparisons with it
    DRAWING = "drawing"  # Hypothesis
    INPUTS = "inputs"  # building the tensors of a case
    LAW = "law"  # the rest of the law itself
    SHRINKING = "shrinking"  # everything from the first failure to the finished message


class Clock:
    """The seconds of each kind of work. Inside a nested block, only the inner kind is counted."""

    def __init__(self):
        self.seconds: dict[Work, float] = defaultdict(float)
        self._stack: list[Work] = []
        self._since = 0.0
        self._only: Work | None = None

    @contextmanager
    def counts(self, work: Work) -> Iterator[None]:
        """Count a block as this kind of work.

        In RUNNING, the time of compilers is counted as COMPILING.
        """
        self._charge()
        self._stack.append(work)
        compiled = compiling_seconds() if work is Work.RUNNING else 0.0
        before = self.seconds[work]
        try:
            yield
        finally:
            self._charge()
            self._stack.pop()
            if work is Work.RUNNING and self._only is None:
                took = min(compiling_seconds() - compiled, self.seconds[work] - before)
                self.seconds[Work.RUNNING] -= took
                self.seconds[Work.COMPILING] += took

    def from_now_on(self, work: Work) -> None:
        """Count everything that follows as this kind of work."""
        self._charge()
        self._only = work

    def _charge(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._only or self._stack[-1]] += now - self._since
        self._since = now


_by_triton = 0.0
_DYNAMO = ("entire_frame_compile", "entire_backward_compile")


def compiling_seconds() -> float:
    """Return the seconds that compilers have taken in this process so far.

    This covers g++ and nvcc through our cache, Triton, and torch.compile.
    """
    _listen_to_triton()
    dynamo = sys.modules.get("torch._dynamo.utils")
    frames = sum(dynamo.calculate_time_spent().get(key, 0.0) for key in _DYNAMO) if dynamo else 0.0
    return build_cache.seconds() + _by_triton + frames


def _listen_to_triton() -> None:
    """Make Triton (from 3.4) report the time of each compilation, unless a listener is set."""
    triton = sys.modules.get("triton.knobs")
    if triton is None or triton.compilation.listener is not None:
        return

    def listener(*, times, **_) -> None:
        global _by_triton
        _by_triton += times.total / 1e6
        NOW.compiled(times.total / 1e6)

    triton.compilation.listener = listener
