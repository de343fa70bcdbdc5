"""The names of sizes, passes and dtypes on the command line. This module does not import torch, so
--help is quick.
"""

from __future__ import annotations

from typing import NamedTuple

PASSES = ("forward", "backward")
DTYPES = ("float32", "float16", "bfloat16")  # the same as in cases/case.py, which imports torch


class Size(NamedTuple):
    """The size of a call, written as in tables and --size: 8x12x1024x64."""

    batch: int
    nheads: int
    seqlen: int
    headdim: int

    def __str__(self) -> str:
        return "x".join(map(str, self))
