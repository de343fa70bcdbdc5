"""Says in words what the cases of a law have covered: "2 heads, batch 2, 2 x 3 tiles, causal"."""

from __future__ import annotations

from collections.abc import Sequence

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.pictures import plural


def covered(cases: Sequence[Case], impl: Implementation) -> str:
    """Return the largest sizes among the cases, and the features that any of them has.

    Lengths are tiles of queries x tiles of keys if a tile is declared.
    """
    heads, batch = max(case.nheads for case in cases), max(case.batch for case in cases)
    gqa = any(case.nheads != case.nheads_k for case in cases)
    parts = [
        f"{heads} heads" if heads > 1 else "one head",
        f"batch {batch}" if batch > 1 else "",
        "GQA" if gqa else "",
        *_lengths(cases, impl.tile),
        "causal" if any(case.causal for case in cases) else "",
        "bias" if any(case.bias for case in cases) else "",
        "backward" if impl.backward is not None else "forward only",
    ]
    return ", ".join(filter(None, parts))


def _lengths(cases: Sequence[Case], tile: tuple[int, int] | None) -> list[str]:
    if tile is None:
        queries, keys = max(case.seqlen_q for case in cases), max(case.seqlen_k for case in cases)
        return [f"up to {plural(queries, 'query', 'queries')} and {plural(keys, 'key')}"]
    grids = {(-(-case.seqlen_q // tile[0]), -(-case.seqlen_k // tile[1])) for case in cases}
    largest = [(m, n) for m, n in grids if not any((m, n) != (a, b) and m <= a and n <= b for a, b in grids)]
    if largest == [(1, 1)]:
        return ["one tile"]
    return [f"{' and '.join(f'{m} x {n}' for m, n in sorted(largest, reverse=True))} tiles"]
