"""Limits the memory of a judging process.

A request for too much memory then raises an error instead of bringing the machine down.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
LIMITS = (  # files of this control group, in versions 2 and 1: (limit, usage)
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
FIRST_TO_GO = "800"  # up to 1000: Linux ends the highest score first when memory runs out


def limit(device: str) -> None:
    """Limit this judging process to the memory that the machine has left.

    A larger request then fails with MemoryError or bad_alloc. The limit counts writable memory,
    touched or not. Sparse memory is mapped as shared, so it does not count. With a GPU there is no
    limit, because its driver reserves far more than it uses.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)
    free = available()
    if device == "cpu" and free:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        with suppress(ValueError, OSError):  # a lower limit is set already
            resource.setrlimit(resource.RLIMIT_DATA, (_data() + free, hard))


def available() -> int:
    """Return how many bytes this process may take, or 0 if that is unknown.

    More would exhaust this machine or its control group.
    """
    try:
        amounts = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
        free = [int(amounts["MemAvailable"].split()[0]) << 10]
    except (OSError, KeyError, ValueError):
        return 0
    for most, used in LIMITS:
        with suppress(OSError, ValueError):  # another version, or "max"
            free.append(int(most.read_text()) - int(used.read_text()))
    return max(0, min(free))


def _data() -> int:
    """Return how many bytes of this process already count towards the limit."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    return pages * resource.getpagesize()
