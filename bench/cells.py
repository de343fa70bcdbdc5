"""Which cells there are: a case x a pass x an implementation, and what can be said of one before it runs.

The sizes are those of the FlashAttention papers: 16384 tokens whatever the length, and nheads * headdim = 2048.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from dataclasses import dataclass

import torch

from impls.contract import Absent, Implementation
from impls.registry import Broken, Entry
from properties.case import DTYPES, Case
from properties.support import unsupported

PASSES = ("forward", "backward")
TOKENS, WIDTH = 16384, 2048  # on a GPU: batch * seqlen and nheads * headdim

# What others are measured beside: the first of the baselines that was timed is 1.00x.
BESIDE = ("torch_math", "torch_sdpa_flash", "torch_sdpa_cudnn")
BASELINES = ("torch_sdpa_flash", "torch_sdpa_flash_cpu", "torch_sdpa_flash_cpu_half")
MADE_FOR_SPEED = ("triton_", "cuda_")
SIMULATED = ("triton_", "cuda_")  # on a CPU: the time of what runs GPU code there, which says nothing of the kernel's

# How many (b, h, sq, sk) float32 matrices manual attention holds at once. Counted by PyTorch's profiler.
MATRICES = {"torch_math": {"forward": 3.3, "backward": 4.7}}


@dataclass(frozen=True)
class Grid:
    """What is measured on a device where the command line does not say otherwise."""

    dtypes: tuple[str, ...]
    seqlens: tuple[int, ...]
    seconds: float
    headdims: tuple[int, ...] = (64, 128)


GRIDS = {
    "cuda": Grid(("bfloat16", "float16"), (512, 1024, 2048, 4096, 8192, 16384), seconds=0.2),
    "cpu": Grid(("float32", "bfloat16"), (128, 256), seconds=0.05),
}


def cases(
    device: str, dtypes: Collection[str], headdims: Collection[int], masks: Collection[bool], seqlens: Collection[int]
) -> list[Case]:
    """One case for each dtype x headdim x mask (causal or not) x seqlen, in that order."""
    found = []
    for dtype, headdim, causal, seqlen in itertools.product(dtypes, headdims, masks, seqlens):
        batch, nheads = (1, 2) if device == "cpu" else (max(1, TOKENS // seqlen), max(1, WIDTH // headdim))
        found.append(Case(batch=batch, seqlen_q=seqlen, seqlen_k=seqlen, nheads=nheads, nheads_k=nheads,
                          headdim=headdim, dtype=DTYPES[dtype], causal=causal))  # fmt: skip
    return found


def visible_pairs(seqlen: int, causal: bool) -> int:
    """How many (query, key) pairs are not masked: seqlen^2, or query i's i + 1 keys, summed over i."""
    return seqlen * (seqlen + 1) // 2 if causal else seqlen * seqlen


def flops(case: Case, which: str) -> float:
    """FLOPs of one call, counted as in the FlashAttention papers: of what is visible, not of what a kernel computes.

    forward: 2 products (Q K^T, P V) of 2 * headdim each for every visible pair. backward: 5 products, one of them
    Q K^T again, hence 2.5 times as many. The papers halve for causal; here the diagonal's pairs are counted too.
    """
    forward = 4.0 * case.batch * case.nheads * visible_pairs(case.seqlen_q, case.causal) * case.headdim
    return forward if which == "forward" else 2.5 * forward


def fewest_flops(impl: Implementation, case: Case, which: str) -> float:
    """FLOPs that cannot be avoided: a backward that is given lse alone has to do Q K^T again, autograd may keep P."""
    kept = which == "backward" and impl.backward == "autograd"
    return flops(case, which) * (4 / 5 if kept else 1)


def implementations(entries: list[Entry], device: str) -> list[Entry]:
    """Our own that are timed where nothing is named; what could not be loaded stays, so that it is told.

    Of ours that are made for speed, those that take every dtype and head dim of the grid: a variant for tf32 would show
    as a column of refusals.
    """
    grid = GRIDS[device]

    def wanted(entry: Entry) -> bool:
        if isinstance(entry.impl, Broken):
            return True
        if isinstance(entry.impl, Absent) or device not in entry.impl.devices:
            return False
        if device == "cpu":
            return not entry.name.startswith(SIMULATED)
        supports = entry.impl.supports
        whole = all(DTYPES[d] in supports.dtypes for d in grid.dtypes) and all(
            d in supports.headdims for d in grid.headdims
        )
        return entry.name in BESIDE or (entry.name.startswith(MADE_FOR_SPEED) and whole)

    return [entry for entry in entries if wanted(entry)]


def column(name: str) -> tuple:
    """Sorts names as the table has them: manual attention, the baseline, the rest of PyTorch, and then the others."""
    return (name != "torch_math", name not in BASELINES, not name.startswith("torch_"), name)


def refusal(impl: Implementation, case: Case, which: str) -> str | None:
    """Why the implementation declares that it does not do this cell; None if it does."""
    if which == "backward" and impl.backward is None:
        return f"{impl.name} has no backward"
    return unsupported(impl, case)


def too_large(impl: Implementation, case: Case, which: str, device: str) -> str | None:
    """ "needs X GiB, ..." where an implementation is known to write matrices that do not fit; None otherwise."""
    matrices = MATRICES.get(impl.name, {}).get(which, 0.0)
    needed = matrices * 4 * case.batch * case.nheads * case.seqlen_q * case.seqlen_k
    there = memory(device)
    return None if needed <= there else f"needs {needed / 2**30:.0f} GiB, there are {there / 2**30:.0f}"


def memory(device: str) -> float:
    """Bytes that are free on a GPU; all that a computer has, on a CPU."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not everywhere
        return float("inf")
