"""Lengths at which an implementation may take another path, and lengths next to them.

Decoding kernels begin at 256 keys, and split-KV kernels at 4096: a path goes wrong first at the
length from which it is chosen. An implementation declares such lengths (`paths`). Without a
declaration a few usual numbers of keys are tried, and two tiles if a tile is long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.draws import Draws

if TYPE_CHECKING:
    from flash_attest.properties.cases.limits import Limits

USUAL = {"seqlen_k": (256, 512, 1024, 4096)}  # if nothing is declared
FEWEST = 2  # with many keys a case has at most this many queries, and with many queries as few keys

Length = tuple[str, int]  # a field of a case, and its value


def path_lengths(impl: Implementation, limits: Limits, want: Draws, most: int) -> tuple[Length, ...]:
    """Return t - 1, t and t + 1 for every length t at which another path may begin.

    most: the longest length of other cases. A length that is not declared is returned only if it is
    longer, and not so long that it takes an emulator seconds. The law wants all of them.
    """
    declared = {(name, t) for name, lengths in impl.paths.items() for t in lengths}
    blocks = dict(zip(("seqlen_q", "seqlen_k"), impl.tile or (0, 0), strict=True))
    likely = {(name, 2 * block) for name, block in blocks.items()}
    if impl.supports.cross and not declared:
        likely |= {(name, t) for name, lengths in USUAL.items() for t in lengths if 30 * t <= limits.elements}
    edges = declared | {(name, t) for name, t in likely if t > most}
    lengths = {(name, t + d) for name, t in edges for d in (-1, 0, 1)}
    return tuple(sorted(length for length in lengths if _fits(*length, impl, limits, want)))


def _fits(name: str, n: int, impl: Implementation, limits: Limits, want: Draws) -> bool:
    least, most = getattr(want, name)
    if n < least or (most is not None and n > most):
        return False
    return n * n <= limits.elements if _equal(impl, want) else 8 * n <= limits.elements


def _equal(impl: Implementation, want: Draws) -> bool:
    """Return whether both lengths have to be equal."""
    return want.cross is False or not impl.supports.cross


def on_path(
    length: Length, seqlen_q: int, seqlen_k: int, impl: Implementation, want: Draws, most: int, *, causal: bool
) -> tuple[int, int]:
    """Return the two lengths, of which one is replaced by `length`.

    If it is longer than `most`, the other one becomes short.
    """
    name, n = length
    if _equal(impl, want) or (seqlen_q == seqlen_k and n <= most):
        return n, n
    if n > most:
        if name == "seqlen_q" and causal and impl.empty_rows != "zero":  # rows would be empty
            return seqlen_q, seqlen_k
        seqlen_q, seqlen_k = min(seqlen_q, FEWEST), min(seqlen_k, FEWEST)
    return (n, seqlen_k) if name == "seqlen_q" else (seqlen_q, n)
