"""The dtypes and head dims with which a run combines its features, where each pair is compiled.

A Triton kernel is compiled for each dtype, padded head dim, alignment and set of features: a
thousand kernels of a second each in a run of 30 cases a law. Two laws that draw the same features
need no other kernel. So each set of features has a few kinds in a run, which its seed chooses, the
same ones in all laws. They have every dtype and every padded head dim, wide loads and others.
Another seed combines them in another way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import Any, NamedTuple

import torch

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.layouts import UNALIGNED

PER_SET = 6  # kinds of a set of features
MOST_CASES = 30  # of a law; a run with more draws from everything
PAIRS_PER_SET = 2  # pairs (headdim, headdim_v)
LEAST = 32  # the smallest head dim to which kernels pad
WIDE = 8  # columns in 16 bytes of a half dtype


class Kind(NamedTuple):
    """A dtype, a head dim padded to a power of two, and whether it is a multiple of 8."""

    dtype: torch.dtype
    padded: int
    wide: bool

    def has(self, headdim: int, layout: str) -> bool:
        """Return whether a head dim is of this kind. Unaligned rows are not loaded in 16 bytes."""
        wide = headdim % WIDE == 0
        return padded(headdim) == self.padded and (wide == self.wide or (not self.wide and layout in UNALIGNED))


def padded(headdim: int) -> int:
    """Return the head dim to which kernels pad, a power of two."""
    return max(LEAST, 1 << (headdim - 1).bit_length())


def kinds_of(impl: Implementation, seed: int, features: tuple[str, ...]) -> list[Kind]:
    """Return the kinds that a set of features (`set_of`) has in a run.

    Variants of an implementation have the same ones, so that they share kernels.
    """
    random = Random(f"{seed} {features}")
    dtypes = sorted(impl.supports.dtypes, key=str)
    blocks = sorted({padded(headdim) for headdim in impl.supports.headdim_list})
    wide = [True, False]
    for values in (dtypes, blocks, wide):
        random.shuffle(values)
    return [
        Kind(dtypes[n % len(dtypes)], blocks[n % len(blocks)], wide[(n + n // len(blocks)) % 2]) for n in range(PER_SET)
    ]


def pairs_of(impl: Implementation, seed: int, pairs: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pairs (headdim, headdim_v) that a run has."""
    return Random(seed).sample(list(pairs), min(PAIRS_PER_SET, len(pairs)))


def has_kind(impl: Implementation, seed: int, case: Case) -> bool:
    """Return whether a run draws cases of the kind and the features of a case."""
    row = {**vars(case), "headdim_v": case.headdim_v != case.headdim}
    if row["headdim_v"]:
        return (case.headdim, case.headdim_v) in pairs_of(impl, seed, sorted(impl.supports.headdims_v))
    kinds = kinds_of(impl, seed, set_of(row))
    return any(kind.dtype == case.dtype and kind.has(case.headdim, case.layout) for kind in kinds)


def set_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the features of a row that decide which kernels are compiled, in coarse classes.

    Most kernels have those of a mask, of sinks and of a narrower v at no cost, and so always.
    """
    others = ("window", "sinks", "headdim_v", "hidden", "shared_kv")
    found = {"bias": row["bias"], "softcap": row["softcap"], "others": any(row[name] for name in others)}
    return tuple(name for name, value in found.items() if value)
