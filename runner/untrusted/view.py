"""Describes which files a kernel process sees.

This module imports only the standard library, because the kernel process loads nothing else before
it is in the sandbox.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass

OF_PROC = tuple(
    f"/proc/{name}"
    for name in (
        "self",
        "cpuinfo",
        "meminfo",
        "stat",
        "version",
        "filesystems",
        "loadavg",
        "uptime",
        "sys",
        "driver",
        "devices",
        "modules",  # CUDA looks up its device nodes and its module there
    )
)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
GPUS = ("nvidia*", "kfd", "dri")


def gpu_nodes() -> list[str]:
    """Return the device nodes of GPUs."""
    return [path for pattern in GPUS for path in sorted(glob.glob(f"/dev/{pattern}"))]


@dataclass(frozen=True)
class View:
    """Files and folders that are readable, with all below them except what is hidden.

    The deepest path that contains a file decides. writable: folders. cwd: where the process works.
    """

    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    writable: tuple[str, ...]
    cwd: str

    def ordered(self) -> list[tuple[str, bool]]:
        """Return (path, whether it is readable) wherever that changes, each after the folders that
        contain it.
        """
        shown = dict.fromkeys(self.hidden, False) | dict.fromkeys(self.readable, True)
        changes: dict[str, bool] = {}
        for path in sorted(shown, key=lambda path: (path.count("/"), path)):
            above, readable = path, False
            while above != "/":
                above = os.path.dirname(above)
                if above in changes:
                    readable = changes[above]
                    break
            if shown[path] != readable:
                changes[path] = shown[path]
        return [*changes.items()]

    def allowed(self) -> Iterator[str]:
        """Yield paths that together hold what is readable and nothing that is hidden."""
        marked = dict(self.ordered())

        def within(path: str, readable: bool) -> Iterator[str]:
            readable = marked.get(path, readable)
            below = path.rstrip("/") + "/"
            if not any(other.startswith(below) for other in marked):
                if readable:
                    yield path
            elif readable:
                with contextlib.suppress(OSError):
                    for name in sorted(os.listdir(path)):
                        yield from within(below + name, readable)

        for path, readable in marked.items():
            if readable:
                yield from within(path, readable)
