"""How much memory a judging process may take, so that what an implementation asks for is an answer and ends no machine."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
LIMITS = (  # of this control group, in versions 2 and 1: (the limit, what it uses)
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
FIRST_TO_GO = "800"  # of 1000: whom Linux ends first where a machine has no memory left


def limit(device: str) -> None:
    """Call in a judging process. Asking for more than this machine has left is then an error: MemoryError, bad_alloc.

    The limit counts what may be written, touched or not; sparse memory is shared, which it does not count. With a GPU there
    is no limit: its driver reserves far more than it uses.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)
    free = available()
    if device == "cpu" and free:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        with suppress(ValueError, OSError):  # it has a lower one
            resource.setrlimit(resource.RLIMIT_DATA, (_data() + free, hard))


def available() -> int:
    """Bytes that this process may take before this machine, or its control group, has none left; 0 if nobody says."""
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
    """What the limit counts of this process already."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    return pages * resource.getpagesize()
