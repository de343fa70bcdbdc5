"""Names its implementation otherwise."""

from impls import Implementation

MINE = Implementation(name="mine", forward=lambda q, k, v: q)
