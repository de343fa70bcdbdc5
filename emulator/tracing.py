"""Under the tracer: what is launched inside `tracing()` is watched, access by access."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.cuda.build import runtime
from races.finding import Report

LIMIT = 60.0  # seconds for one launch; then it is a deadlock, or too much for a CPU


@dataclass
class Tracing:
    """What was seen: reports, one for each kind, pair of lines and tensor; launches, how many kernels were run."""

    reports: list[Report] = field(default_factory=list)
    launches: int = 0

    def add(self, found: list[Report]) -> None:
        """Take reports in: one for each kind, pair of lines and tensor, with the sum of the counts."""
        at = {_same(report): n for n, report in enumerate(self.reports)}
        for report in found:
            n = at.setdefault(_same(report), len(self.reports))
            if n == len(self.reports):
                self.reports.append(report)
            else:
                self.reports[n] = replace(self.reports[n], count=self.reports[n].count + report.count)


def _same(report: Report) -> tuple:
    lines = tuple((site.file, site.line) for site in report.sites)
    return report.kind, report.tensor, tuple(sorted(lines)) if report.kind == "race" else lines  # whichever came first


_current: Tracing | None = None
_lock = threading.RLock()


def current() -> Tracing | None:
    """The tracing that is under way in this process, or None: plain mode."""
    return _current


@contextmanager
def tracing(seed: int = 0, switch: float = 0.0, limit: float = LIMIT) -> Iterator[Tracing]:
    """Watch every launch of a loaded .cu inside this block.

    seed: 0 runs threads and blocks in order, another one in an order of its own. switch: the chance that another thread goes
    on at an access, which shows what a race can do to the result.
    limit: seconds for one launch. What goes wrong is a report here, not an exception.
    """
    global _current
    if not 0.0 <= switch <= 1.0:
        raise ValueError(f"switch={switch!r}: should be a chance, from 0 to 1")
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ValueError(f"seed={seed!r}: should be an int from 0 to 2**64 - 1")
    if not (isinstance(limit, (int, float)) and 0 < limit < 1e6):
        raise ValueError(f"limit={limit!r}: should be seconds, above 0")
    with _lock:
        if _current is not None:
            raise RuntimeError("tracing() inside tracing(): one at a time")
        found = _current = Tracing()
        lib = runtime()
        configure(True, seed, switch, limit)
        try:
            yield found
        finally:
            lib.cuda_trace_launches.restype = ctypes.c_uint64
            found.launches = lib.cuda_trace_launches()
            _current = None
            configure(False, 0, 0.0, LIMIT)
            lib.cuda_trace_forget_shadows()


def configure(trace: bool, seed: int, switch: float, limit: float) -> None:
    """Set the runtime's mode."""
    runtime().cuda_trace_configure(
        ctypes.c_int(trace), ctypes.c_uint64(seed), ctypes.c_double(switch), ctypes.c_double(limit)
    )


def trace(call: Callable[[], Any], seed: int = 0, switch: float = 0.0, limit: float = LIMIT) -> list[Report]:
    """call() under the tracer -> everything found; [] is: none for this input. See `tracing` for the options.

    Where the call raises because of what was found (it asks for errors, say), the reports are the answer. Raises RuntimeError
    if no kernel ran, as that would prove nothing.
    """
    with tracing(seed, switch, limit) as found:
        try:
            call()
        except Exception:
            if not found.reports:
                raise
    if not found.launches and not found.reports:
        raise RuntimeError(
            "no kernel of a file that emulator.cuda has loaded has run (none was launched, or the launch failed and the host "
            "code took note): there was nothing to trace"
        )
    return found.reports
