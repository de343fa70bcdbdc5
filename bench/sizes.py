"""What a cell of the benchmark is called on a command line: its size, its pass, its dtype. Imports no torch, for --help."""

from __future__ import annotations

from typing import NamedTuple

PASSES = ("forward", "backward")
DTYPES = ("float32", "float16", "bfloat16")  # those of cases


class Size(NamedTuple):
    """The size of a call, written as in tables and --size: 8x12x1024x64."""

    batch: int
    nheads: int
    seqlen: int
    headdim: int

    def __str__(self) -> str:
        return "x".join(map(str, self))
