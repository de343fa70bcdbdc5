"""Which cells there are: a case x a pass x an implementation, and what can be said of one before it runs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch

from impls.contract import Absent, Implementation
from impls.registry import Entry, Unloadable
from properties.cases.case import DTYPES, Case, text_of
from properties.cases.support import unsupported

PASSES = ("forward", "backward")
TOKENS, WIDTH = 16384, 2048  # on a GPU, the sizes of the FlashAttention papers: batch * seqlen and nheads * headdim

# The first of the baselines that was timed is 1.00x.
BASELINES = ("torch_sdpa_flash", "torch_sdpa_flash_cpu", "torch_sdpa_flash_cpu_half", "torch_sdpa_efficient_float32")
# On a GPU at the first call; on a CPU they run in a simulator, which says nothing of speed.
COMPILED = ("triton_", "cuda_")

# How many (b, h, sq, sk) float32 matrices manual attention holds at once. Counted by PyTorch's profiler.
MATRICES = {"torch_math": {"forward": 3.3, "backward": 4.7}}


class Size(NamedTuple):
    """Of a call, as tables and --size have it: 8x12x1024x64."""

    batch: int
    nheads: int
    seqlen: int
    headdim: int

    def __str__(self) -> str:
        return "x".join(map(str, self))


def of_papers(device: str, headdim: int, seqlen: int) -> Size:
    """The batch and heads that the FlashAttention papers take with it: the same tokens and width always. Few on a CPU."""
    batch, nheads = (1, 2) if device == "cpu" else (max(1, TOKENS // seqlen), max(1, WIDTH // headdim))
    return Size(batch, nheads, seqlen, headdim)


def curves(device: str, headdims: Iterable[int], seqlens: Iterable[int]) -> tuple[Size, ...]:
    """For each head dim, the papers' size at every length."""
    return tuple(of_papers(device, headdim, seqlen) for headdim, seqlen in itertools.product(headdims, seqlens))


@dataclass(frozen=True)
class Grid:
    """What is measured together, and so is a table for each dtype, where the command line does not say otherwise.

    impls: names, or patterns of names. whole: of them those that take every dtype and head dim of the grid, as a variant
    for tf32, say, would show as a column of refusals.
    """

    impls: tuple[str, ...]
    dtypes: tuple[str, ...]
    sizes: tuple[Size, ...]
    whole: bool = True

    def entries(self, known: list[Entry], device: str) -> list[Entry]:
        """Those of ours that are timed where nothing is named; what could not be loaded stays, so that it is told."""
        return [entry for entry in known if isinstance(entry.impl, Unloadable) or self._has(entry.impl, device)]

    def left_out(self, known: list[Entry], device: str) -> list[str]:
        """Why an implementation that the grid names (by its name, no pattern) is not timed here."""
        found = []
        for impl in (entry.impl for entry in known if entry.name in self.impls):
            if isinstance(impl, Absent):
                found.append(f"{impl.name}: {impl.reason}")
            elif not isinstance(impl, Unloadable) and device not in impl.devices:
                found.append(f"{impl.name}: {impl.unavailable.get(device, f'it does not run on {device}')}")
        return found

    def _has(self, impl: Implementation | Absent, device: str) -> bool:
        if isinstance(impl, Absent) or device not in impl.devices:
            return False
        if device == "cpu" and impl.name.startswith(COMPILED):
            return False
        dtypes, headdims = impl.supports.dtypes, impl.supports.headdims
        takes_all = all(DTYPES[d] in dtypes for d in self.dtypes) and all(n.headdim in headdims for n in self.sizes)
        return any(fnmatchcase(impl.name, name) for name in self.impls) and (takes_all or not self.whole)


# The second one has the sizes of two teaching systems, and kernels without matrix units, which would only be slow in the
# first.
GRIDS = {
    "cuda": (
        Grid(("torch_math", "torch_sdpa_flash", "torch_sdpa_cudnn", "triton_*"), ("bfloat16", "float16"),
             curves("cuda", (64, 128), (512, 1024, 2048, 4096, 8192, 16384))),
        Grid(("torch_math", "torch_sdpa_efficient_float32", "triton_fa2", "cuda_fa1", "cuda_fa2"), ("float32",),
             (Size(16, 12, 64, 64), Size(8, 12, 1024, 64))),
    ),
    "cpu": (Grid(("*",), ("float32", "bfloat16"), curves("cpu", (64, 128), (128, 256)), whole=False),),
}  # fmt: skip
SIZED_DTYPES = ("float32",)  # of --size without --dtype
SECONDS = {"cuda": 0.2, "cpu": 0.05}  # of each cell


def grids(
    device: str,
    dtypes: tuple[str, ...] | None = None,
    sizes: tuple[Size, ...] | None = None,
    headdims: tuple[int, ...] | None = None,
    seqlens: tuple[int, ...] | None = None,
) -> list[tuple[Grid, tuple[str, ...], tuple[Size, ...]]]:
    """What the command line asks for: each grid that takes part, with its dtypes and sizes.

    A dtype is measured in the grid that has it, or else in the first. Head dims and lengths are those of the first.
    """
    first = GRIDS[device][0]
    if headdims or seqlens:
        headdims = headdims or tuple(dict.fromkeys(size.headdim for size in first.sizes))
        seqlens = seqlens or tuple(dict.fromkeys(size.seqlen for size in first.sizes))
        sizes, dtypes = curves(device, headdims, seqlens), dtypes or first.dtypes
    elif sizes:
        dtypes = dtypes or SIZED_DTYPES
    found: dict[Grid, list[str]] = {}
    for dtype in dtypes or (dtype for grid in GRIDS[device] for dtype in grid.dtypes):
        home = next((grid for grid in GRIDS[device] if dtype in grid.dtypes), first)
        found.setdefault(home, []).append(dtype)
    return [(grid, tuple(its), sizes or grid.sizes) for grid, its in found.items()]


def cases(dtypes: Iterable[str], sizes: Iterable[Size], masks: Iterable[bool]) -> list[Case]:
    """One case for each dtype x mask (causal or not) x size, in that order."""
    return [Case(batch=size.batch, seqlen_q=size.seqlen, seqlen_k=size.seqlen, nheads=size.nheads, nheads_k=size.nheads,
                 headdim=size.headdim, dtype=DTYPES[dtype], causal=causal)
            for dtype, causal, size in itertools.product(dtypes, masks, sizes)]  # fmt: skip


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


def column(name: str) -> tuple:
    """Sorts names as the table has them: manual attention, the baseline, the rest of PyTorch, and then the others."""
    return (name != "torch_math", name not in BASELINES, not name.startswith("torch_"), name)


def product_of(impl: Implementation, dtype: torch.dtype, device: str) -> str:
    """The matrix product that it is made of, and whose peak it cannot beat: its dtype, or tf32 where it declares that."""
    tf32 = device == "cuda" and dtype == torch.float32 and impl.precision.multiply == "tf32"
    return "tf32" if tf32 else text_of(dtype)


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
