"""Parses --shard i/n. It imports neither torch nor pytest, so --help is quick."""

from __future__ import annotations

import re
from typing import NamedTuple

FORM = "should be i/n with 1 <= i <= n, as in --shard 1/4"


class Shard(NamedTuple):
    """One part of a run: number `part` of `of`, counted from 1."""

    part: int
    of: int

    def __str__(self) -> str:
        return f"{self.part}/{self.of}"


def parse(text: str) -> Shard:
    """Read "2/3" as Shard(2, 3). Raises ValueError, which quotes the text and names the form."""
    if match := re.fullmatch(r"([0-9]+)/([0-9]+)", text.strip()):
        shard = Shard(*map(int, match.groups()))
        if 1 <= shard.part <= shard.of:
            return shard
    raise ValueError(f"--shard {text}: {FORM}")
