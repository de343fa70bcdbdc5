"""The benchmarks that print a line for each result, as it is measured.

They have a module each, which is run by its name: decode.py, windows.py, varlen.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import torch


class Line(NamedTuple):
    """A result in words. wrong: whether it differs from float32 attention, so it was not timed."""

    text: str
    wrong: bool = False

    @classmethod
    def of_mistake(cls, reason: str) -> Line:
        """Return the line of a wrong result."""
        return cls(f"wrong: {reason}", wrong=True)


def printed(name: str, title: str, lines: Iterator[Line]) -> int:
    """Print the title, after the name of the GPU, and each line. Returns the exit status.

    It is 2 if there is no GPU; then nothing is measured.
    """
    if not torch.cuda.is_available():
        print(f"bench.{name}: there is no GPU, and the speed of the emulator means nothing", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}: {title}\n")
    wrong = False
    for line in lines:
        print(line.text, flush=True)
        wrong |= line.wrong
    return int(wrong)
