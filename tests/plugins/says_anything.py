"""Implementations that say and print every kind of character, but not in the contract check."""

import os
from dataclasses import replace

from tests.plugins import good

WORDS = "Größe 日本 עברית \x1b[2J\x1b]0;title\x07 \u202e \ud800 \0 \r \x9b31m \u2066"


def says(q, k, v):
    print(WORDS)
    if q.shape[1] != 64:
        raise ValueError(WORDS)
    return good.forward(q, k, v)


def crashes(q, k, v):
    if q.shape[1] != 64:
        os.write(1, WORDS.encode("utf-8", "surrogatepass") + b"\xff\n")
        os.abort()
    return good.forward(q, k, v)


IMPL = replace(good.IMPL, name="says_anything", forward=says)
CRASHES = replace(good.IMPL, name="says_and_crashes", forward=crashes)
