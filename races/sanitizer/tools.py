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
MOST_PRINTED = 100  # reports that a tool prints; it only counts the rest


class Tool(Enum):
    """The tools that judge.

    initcheck is left out, as it does not see writes by kernels that are not watched.
    """

    RACECHECK = "racecheck"
    MEMCHECK = "memcheck"
    SYNCCHECK = "synccheck"

    @property
    def options(self) -> tuple[str, ...]:
        """The tool's own options.

        Errors of API calls are not reported, as libraries probe drivers with calls that fail.
        """
        return ("--report-api-errors", "no") if self is Tool.MEMCHECK else ()

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables. memcheck knows only memory blocks, so each tensor gets one."""
        return {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if self is Tool.MEMCHECK else {}


def find() -> str | None:
    """Return the path of compute-sanitizer, or None. Newer toolkits come first."""
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
