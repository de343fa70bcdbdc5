"""The sizes from which cases are drawn, near those at which kernels break."""

from __future__ import annotations

from functools import lru_cache

from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.supports import LARGEST_HEADDIM
from flash_attest.properties.cases.limits import Limits

# (batch, nheads_k), by class. An index of one that is taken for the other shows where they differ.
HEADS = {
    "one": ((1, 1),),
    "heads": ((1, 3), (1, 2), (1, 8)),
    "batches": ((3, 1), (2, 1), (5, 1)),
    "as many": ((2, 2), (3, 3)),
    "more heads": ((2, 3), (2, 5)),
    "more batches": ((3, 2), (5, 2)),
    "many heads": ((1, 9), (1, 12), (2, 16)),
    "many batches": ((67, 1), (67, 3)),
}
GROUPS = (2, 3, 4, 5, 7, 8, 16)  # query heads for each key head, with GQA
TILES = (16, 32, 64, 128)  # rows of the tiles of most kernels; a declared one is added
USUAL_HEADDIMS = (64, 96, 128)  # for which kernels have instances and fast paths


def edges(most: int, least: int = 1) -> list[int]:
    """Return t - 1, t, t + 1, t + 2 and 2 t + 1 for every power of two t, near the ends of tiles.

    Only numbers within least .. most are returned.
    """
    near = {t + d for t in (2**p for p in range(15)) for d in (-1, 0, 1, 2)} | {2 * 2**p + 1 for p in range(15)}
    return sorted(n for n in near if least <= n <= most)


def headdims(impl: Implementation, most: int) -> dict[str, tuple[int, ...]]:
    """Return the supported head dims by class: any up to `most`, those near an edge, the usual
    ones, and larger ones.

    If all supported head dims are larger than `most`, the smallest is the only one.
    """
    return _headdims(tuple(impl.supports.headdim_list), most)


@lru_cache(maxsize=1000)
def _headdims(supported: tuple[int, ...], most: int) -> dict[str, tuple[int, ...]]:
    fitting = tuple(d for d in supported if d <= most) or supported[:1]
    classes = {
        "any": fitting,
        "edge": tuple(d for d in edges(most, 7) if d in fitting),
        "usual": tuple(d for d in USUAL_HEADDIMS if d in fitting),
        "large": tuple(d for d in (*edges(LARGEST_HEADDIM), *supported[-1:]) if d in supported and d > most),
    }
    few = len(fitting) <= len(classes["usual"]) + len(classes["edge"])
    return {name: dims for name, dims in classes.items() if dims and not (few and name in ("edge", "usual"))}


def headdim_pairs(impl: Implementation, limits: Limits) -> tuple[tuple[int, int], ...]:
    """Return the declared pairs (headdim, headdim_v), those within the limits if there are any."""
    pairs = tuple(sorted(impl.supports.headdims_v))
    return tuple(pair for pair in pairs if max(pair) <= limits.headdim) or pairs[:1]
