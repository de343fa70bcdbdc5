"""compute-sanitizer: its tools, its path, and its command line.

Documentation: https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

PROGRAM = "compute-sanitizer"
TOOLKITS = Path("/usr/local")
NOT_FOUND = f"no {PROGRAM} found in CUDA_HOME, CUDA_PATH, PATH and {TOOLKITS}/cuda*: it comes with the CUDA toolkit"
MOST_PRINTED = 100  # reports that a tool prints; it only counts further ones


class Tool(Enum):
    """The tools that judge.

    initcheck is left out: it does not see that unwatched kernels wrote to memory.
    """

    RACECHECK = "racecheck"
    MEMCHECK = "memcheck"
    SYNCCHECK = "synccheck"

    @property
    def options(self) -> tuple[str, ...]:
        """Its own options.

        Errors of API calls are not reported: libraries probe drivers by calls that fail.
        """
        return ("--report-api-errors", "no") if self is Tool.MEMCHECK else ()

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the program: memcheck knows only blocks, so each tensor gets its own."""
        return {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if self is Tool.MEMCHECK else {}


def find() -> str | None:
    """Return the path of compute-sanitizer, or None. A newer toolkit has precedence."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [Path(home) / sub for home in homes for sub in ("bin", "compute-sanitizer")]
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += [home / "bin" for home in sorted(TOOLKITS.glob("cuda*"), reverse=True)]
    return next((path for folder in folders if (path := shutil.which(PROGRAM, path=str(folder)))), None)


def command(program: str, tool: Tool, kernels: Iterable[str], log: Path, limit: float, target: list[str]) -> list[str]:
    """Return the command that runs `target` under a tool.

    kernels: parts of the mangled names of the kernels to watch.
    """
    filters = [part for name in kernels for part in ("--kernel-name", f"kernel_substring={name}")]
    return [
        program, "--tool", tool.value, *filters, *tool.options, "--print-limit", str(MOST_PRINTED),
        "--show-backtrace", "device", "--target-processes", "application-only", "--launch-timeout", str(round(limit)),
        "--log-file", str(log), *target,
    ]  # fmt: skip
