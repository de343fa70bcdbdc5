"""The cells of the benchmark (case x pass x implementation), and the checks that are possible
before a cell runs.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from flash_attest.bench.sizes import Size
from flash_attest.impls.contract import registry
from flash_attest.impls.contract.entry import HERE, Entry, Unloadable
from flash_attest.impls.contract.record import Absent, Implementation
from flash_attest.oracle import Mask
from flash_attest.properties.cases.case import DTYPES, Case, text_of
from flash_attest.properties.cases.support import unsupported
from flash_attest.texts import gib

# The verdicts of a cell. If one of UNTRUSTED occurs, the exit status is 1.
TIMED, REFUSED, NO_FIT = "timed", "refused", "does not fit"
WRONG, ERROR, ABOVE_PEAK, NOT_RUN = UNTRUSTED = ("wrong", "error", "above peak", "not run")

# The FlashAttention papers keep batch * seqlen and nheads * headdim constant.
TOKENS, WIDTH = 16384, 2048

# The files in which our implementations are defined: `file` of their entries.
TRITON, CUDA, NUMBA = (str(HERE / name) for name in ("triton", "cuda", "numba"))
PYTORCH = tuple(str(HERE / name) for name in ("torch_sdpa.py", "torch_flex.py", "torch_varlen.py"))
# These compile for a GPU at the first call. On a CPU they run in the emulator, whose speed means
# nothing.
GPU_KERNELS = (TRITON, CUDA, NUMBA)

# The first of these that was timed is the baseline, 1.00x.
BASELINES = ("torch_sdpa_flash", "torch_sdpa_flash_cpu", "torch_sdpa_flash_cpu_half", "torch_sdpa_efficient_float32")

# The number of (b, h, sq, sk) float32 matrices held at once, as counted by PyTorch's profiler.
MATRICES = {"torch_math": {"forward": 3.3, "backward": 4.7}}


def of_papers(device: str, headdim: int, seqlen: int) -> Size:
    """Return the size with the batch and heads of the FlashAttention papers, or a small size for a
    CPU.
    """
    batch, nheads = (1, 2) if device == "cpu" else (max(1, TOKENS // seqlen), max(1, WIDTH // headdim))
    return Size(batch, nheads, seqlen, headdim)


def curves(device: str, headdims: Iterable[int], seqlens: Iterable[int]) -> tuple[Size, ...]:
    """Return the papers' size at every length, for each head dim."""
    return tuple(of_papers(device, headdim, seqlen) for headdim, seqlen in itertools.product(headdims, seqlens))


@dataclass(frozen=True)
class Grid:
    """Cells that are measured together by default, in one table for each dtype.

    impls: names, None for all. packages: implementations of these packages are also measured.
    whole: leave out implementations that do not take every dtype and head dim of the grid, because
    a variant for tf32, for example, would be a column of refusals.
    """

    impls: tuple[str, ...] | None
    dtypes: tuple[str, ...]
    sizes: tuple[Size, ...]
    packages: tuple[str, ...] = ()
    whole: bool = True

    def entries(self, known: list[Entry], device: str) -> list[Entry]:
        """Return our implementations that are timed by default, and those that failed to load,
        which are reported.
        """
        return [entry for entry in known if isinstance(entry.impl, Unloadable) or self._has(entry, device)]

    def left_out(self, known: list[Entry], device: str) -> list[str]:
        """Return "name: reason" for each implementation that the user named but that is not timed
        here.
        """
        lines = []
        for impl in (entry.impl for entry in known if entry.name in (self.impls or ())):
            if isinstance(impl, Absent):
                lines.append(f"{impl.name}: {impl.reason}")
            elif not isinstance(impl, Unloadable) and device not in impl.devices:
                lines.append(f"{impl.name}: {impl.unavailable.get(device, f'it does not run on {device}')}")
        return lines

    def _has(self, entry: Entry, device: str) -> bool:
        impl = entry.impl
        if isinstance(impl, Absent) or device not in impl.devices or impl.supports.form != "dense":
            return False
        if device == "cpu" and entry.file in GPU_KERNELS:
            return False
        named = self.impls is None or impl.name in self.impls or entry.file in self.packages
        dtypes, headdims = impl.supports.dtypes, impl.supports.headdims
        takes_all = all(DTYPES[d] in dtypes for d in self.dtypes) and all(n.headdim in headdims for n in self.sizes)
        return named and (takes_all or not self.whole)


# The second grid for a GPU has the sizes of two teaching systems. Its kernels do not use matrix
# units, so the sizes of the first grid would only take long.
GRIDS = {
    "cuda": (
        Grid(("torch_math", "torch_sdpa_flash", "torch_sdpa_cudnn"), ("bfloat16", "float16"),
             curves("cuda", (64, 128), (512, 1024, 2048, 4096, 8192, 16384)), packages=(TRITON,)),
        Grid(("torch_math", "torch_sdpa_efficient_float32", "triton_fa2", "cuda_fa1", "cuda_fa2", "numba_fa1",
              "numba_fa2"), ("float32",), (Size(16, 12, 64, 64), Size(8, 12, 1024, 64))),
    ),
    "cpu": (Grid(None, ("float32", "bfloat16"), curves("cpu", (64, 128), (128, 256)), whole=False),),
}  # fmt: skip
SIZED_DTYPES = ("float32",)  # for --size without --dtype
SECONDS = {"cuda": 0.2, "cpu": 0.05}  # of each cell


def grids(
    device: str,
    dtypes: tuple[str, ...] | None = None,
    sizes: tuple[Size, ...] | None = None,
    headdims: tuple[int, ...] | None = None,
    seqlens: tuple[int, ...] | None = None,
) -> list[tuple[Grid, tuple[str, ...], tuple[Size, ...]]]:
    """Return each grid that the options ask for, with its dtypes and sizes.

    A dtype is measured in the grid that has it, or in the first grid if none has it. The default
    head dims and lengths are those of the first grid.
    """
    first = GRIDS[device][0]
    if headdims or seqlens:
        headdims = headdims or tuple(dict.fromkeys(size.headdim for size in first.sizes))
        seqlens = seqlens or tuple(dict.fromkeys(size.seqlen for size in first.sizes))
        sizes, dtypes = curves(device, headdims, seqlens), dtypes or first.dtypes
    elif sizes:
        dtypes = dtypes or SIZED_DTYPES
    dtypes_of: dict[Grid, list[str]] = {}
    for dtype in dtypes or (dtype for grid in GRIDS[device] for dtype in grid.dtypes):
        home = next((grid for grid in GRIDS[device] if dtype in grid.dtypes), first)
        dtypes_of.setdefault(home, []).append(dtype)
    return [(grid, tuple(names), sizes or grid.sizes) for grid, names in dtypes_of.items()]


def cases(dtypes: Iterable[str], sizes: Iterable[Size], masks: Iterable[bool]) -> list[Case]:
    """Return one case for each dtype x mask (causal or not) x size, in that order."""
    return [Case(batch=size.batch, seqlen_q=size.seqlen, seqlen_k=size.seqlen, nheads=size.nheads, nheads_k=size.nheads,
                 headdim=size.headdim, dtype=DTYPES[dtype], causal=causal)
            for dtype, causal, size in itertools.product(dtypes, masks, sizes)]  # fmt: skip


def visible_pairs(seqlen: int, causal: bool) -> int:
    """Return the number of (query, key) pairs that are not masked."""
    first, last = Mask(causal).bounds(torch.arange(seqlen), seqlen, seqlen)
    return int((last - first + 1).sum())


def flops(case: Case, which: str) -> float:
    """Return the FLOPs of one call. As in the FlashAttention papers, only visible pairs count.

    The forward has 2 products (Q K^T, P V) with 2 * headdim FLOPs for every visible pair. The
    backward has 5, because it computes Q K^T again, so its FLOPs are 2.5 times as many. For a
    causal mask, the papers halve the number; here the pairs on the diagonal count in full.
    """
    forward = 4.0 * case.batch * case.nheads * visible_pairs(case.seqlen_q, case.causal) * case.headdim
    return forward if which == "forward" else 2.5 * forward


def fewest_flops(impl: Implementation, case: Case, which: str) -> float:
    """Return the FLOPs that no kernel can avoid.

    A backward that gets only lse has to recompute Q K^T, but autograd may keep P.
    """
    keeps_p = which == "backward" and impl.backward == "autograd"
    return flops(case, which) * (4 / 5 if keeps_p else 1)


def column(name: str) -> tuple:
    """Return the sort key of a column: manual attention, baselines, other implementations of
    PyTorch, all others.
    """
    return (name != "torch_math", name not in BASELINES, name not in _of_pytorch(), name)


@functools.cache
def _of_pytorch() -> frozenset[str]:
    return frozenset(entry.name for entry in registry.ours() if entry.file in PYTORCH)


def product_of(impl: Implementation, dtype: torch.dtype, device: str) -> str:
    """Return the matrix product whose peak bounds the call: in the case's dtype, or in tf32 if
    declared.
    """
    tf32 = device == "cuda" and dtype == torch.float32 and impl.precision.multiply == "tf32"
    return "tf32" if tf32 else text_of(dtype)


def refusal(impl: Implementation, case: Case, which: str) -> str | None:
    """Return why the implementation's contract excludes this cell, or None if it does not."""
    if impl.supports.form != "dense":
        return f"the form of {impl.name} is {impl.supports.form}: only dense calls are timed"
    if which == "backward" and impl.backward is None:
        return f"{impl.name} has no backward"
    return unsupported(impl, case)


def too_large(impl: Implementation, case: Case, which: str, device: str) -> str | None:
    """Return "needs X GiB, ..." if the implementation writes matrices that do not fit, or None."""
    matrices = MATRICES.get(impl.name, {}).get(which, 0.0)
    needed = matrices * 4 * case.batch * case.nheads * case.seqlen_q * case.seqlen_k
    available = memory(device)
    return None if needed <= available else f"needs {gib(needed)}, there are {available / 2**30:.0f}"


def memory(device: str) -> float:
    """Return the free bytes of a GPU, or all memory of the computer for a CPU."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # sysconf does not exist everywhere
        return float("inf")
