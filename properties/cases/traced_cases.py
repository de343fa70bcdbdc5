"""The cases that the law of traced races always holds, whatever `share` says.

Two heads, two batches or two tiles race only in a case that has them, and drawn cases are few for
kernels that are emulated. Each of these cases has several of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import product

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import ADDED, Case
from flash_attest.properties.cases.draws import ANYTHING, Draws
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.failures import AnotherCase
from flash_attest.races.tracing import MOST_CHOSEN

# (BLOCK_M, BLOCK_N) of the first and the second case, if no tile is declared: a tile of 64 or 128
# queries then ends within the queries of one of them.
ASSUMED_TILES = (64, 64), (128, 64)
LONG = 4  # tiles of keys for a single query
FEW = 17  # queries and keys of a short case, and of one that would be too large with whole tiles
# Head dims, if they are supported: a whole one, and two that end within a vector or a tile.
HEADDIMS = (16, 20, 36)


Lengths = tuple[int, int]
SEVERAL, ONE_BATCH, ONE = dict(batch=2, nheads=2, nheads_k=2), dict(nheads=2, nheads_k=2), {}  # heads of a case
GROUP = dict(nheads=2)


def traced_cases(impl: Implementation) -> list[Case]:
    """Return up to four cases that `impl` supports, none above MOST_CHOSEN products.

    1. Two batches, two heads, two tiles of queries, two tiles of keys and part of a third.
    2. The same tiles with GQA, a bias of its own for each head, and the causal mask.
    3. Two heads and a single query with four tiles of keys and part of a fifth.
    4. Two batches and two heads of a few queries and keys, for which kernels may use small tiles.

    A case that would be too large, or is not supported, lacks some of this: the first case keeps
    its heads as long as it can, the second its tiles. With an `accepts`, the lengths are the
    nearest ones that it takes.
    """
    s = impl.supports
    tiles, wide_tiles = (_tiles(*(impl.tile or assumed)) for assumed in ASSUMED_TILES)
    keys = impl.tile[1] if impl.tile else ASSUMED_TILES[0][1]
    long = [(1, n * keys + 2) for n in (LONG, 2, 1)] if s.cross else []
    kinds = tuple(kind for kind in ADDED if kind in s.bias_kinds) or s.bias_kinds or (None,)
    only_causal = s.causal == "always"
    heads = (SEVERAL, ONE_BATCH, dict(batch=2), ONE)
    groups = (GROUP, ONE_BATCH, ONE) if s.gqa else (ONE_BATCH, ONE)
    chosen = [
        _first(impl, 0, product(heads, tiles), causal=only_causal, seed=1),
        _first(
            impl,
            1,
            ((h, n) for n, h in product(wide_tiles, groups)),
            causal=s.causal != "never",
            seed=2,
            bias=kinds[-1],
        ),
        _first(impl, 2, product((ONE_BATCH, ONE), long), causal=only_causal, seed=3, bias=kinds[0]),
        _first(impl, 3, product(heads, [(FEW, FEW)]), causal=only_causal, seed=4),
    ]
    return list(dict.fromkeys(filter(None, chosen)))


def _tiles(rows: int, keys: int) -> list[Lengths]:
    """Return lengths of two tiles of queries and two tiles of keys and a bit, then shorter ones."""
    return [(rows + 1, 2 * keys + 2), (rows + 1, keys + 1), (FEW, keys + 1), (FEW, FEW)]


def _first(impl: Implementation, number: int, sizes: Iterable[tuple[dict, Lengths]], **fields) -> Case | None:
    """Return the first case that is supported and not too large, or None.

    number: of the case. Each begins with another dtype and head dim.
    """
    headdims = [min(impl.supports.headdim_list, key=lambda d: abs(d - headdim)) for headdim in HEADDIMS]
    others = list(product(_from(number, headdims), _from(number, FEATURES["dtype"].drawn(impl.supports, None))))
    for (heads, lengths), (headdim, dtype) in product(sizes, others):
        seqlen_q, seqlen_k = _adapted(impl, *lengths, fields["causal"])
        case = Case(seqlen_q=seqlen_q, seqlen_k=seqlen_k, headdim=headdim, dtype=dtype, **heads, **fields)
        if case.bias in ("matrix", "boolean_matrix"):
            case = case.but(bias_nheads=case.nheads)
        for want in (Draws(cross=True), ANYTHING):  # the first keeps lengths that differ
            with suppress(AnotherCase):
                if (near := fitted(impl, case, want)).products <= MOST_CHOSEN:
                    return near
    return None


def _from(number: int, values: Sequence) -> list:
    """Return the different values, beginning with the one at this number."""
    start = number % len(values)
    return list(dict.fromkeys([*values[start:], *values[:start]]))


def _adapted(impl: Implementation, seqlen_q: int, seqlen_k: int, causal: bool) -> Lengths:
    """Return equal lengths without cross-attention, and if causal at least a key for each query."""
    if impl.supports.cross and not (causal and seqlen_k < seqlen_q):
        return seqlen_q, seqlen_k
    return (max(seqlen_q, seqlen_k),) * 2
