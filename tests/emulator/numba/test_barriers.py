"""Removes every barrier of our Numba kernels, of blocks and of warps, from their PTX one at a time.
The tracer finds each removal.

Each barrier in the Python source has one barrier in the PTX, so each removal corresponds to one
`cuda.syncthreads()` or `cuda.syncwarp()`. Three removals in the kernels of the battery are not
found, for reasons that NOT_FOUND gives.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

from flash_attest.emulator.observation import Kind
from flash_attest.impls.numba import backward, bias_gradient, fa1, fa2, matmul
from flash_attest.impls.numba.attention import Algorithm
from tests.emulator.numba.subjects import RIGHT
from tests.emulator.taken import Taken, taking

KERNELS = {  # name of a Way: the kernels that it always runs
    "fa1": {"fa1_forward": fa1, "backward_kernel": backward},
    "fa2": {"fa2_forward": fa2, "backward_kernel": backward},
    "matmul": {"matmul_kernel": matmul},
}
BARRIER = re.compile(r"^ *cuda\.sync(?:threads|warp)\(", re.M)


@dataclass(frozen=True)
class Way:
    """Launches of an algorithm or of the matrix product: loops of one round and of several, two
    heads for each key head.
    """

    name: str
    dtype: str = "float32"
    headdim: int = 16
    bias_rows: int = 0  # 1: one row for all queries; 2: a row for each

    def launches(self) -> list[Taken]:
        generator = torch.Generator().manual_seed(0)

        def draws(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(getattr(torch, self.dtype))

        with taking() as seen:
            if self.name == "matmul":
                matmul.matmul(draws(40, 70), draws(70, 50))
                return seen
            for n in (70, 20):
                q, k, v, dout = (draws(1, n, heads, self.headdim) for heads in (2, 1, 1, 2))
                bias = draws(1, 1, n if self.bias_rows == 2 else 1, n) if self.bias_rows else None
                way = Algorithm(self.name)
                out, lse = way.forward(q, k, v, causal=True, bias=bias)
                way.backward(dout, q, k, v, out, lse, causal=True, bias=bias)
        return seen


QUICK = [Way("fa1"), Way("fa2", bias_rows=1), Way("matmul")]
THOROUGH = [
    *(Way("fa1", dtype, d, rows) for dtype, d, rows in [("float16", 16, 1), ("bfloat16", 21, 2), ("float32", 64, 0)]),
    *(Way("fa2", dtype, d, rows) for dtype, d, rows in [("float16", 16, 0), ("bfloat16", 21, 2), ("float32", 64, 1)]),
    *(Way("matmul", dtype) for dtype in ("float16", "bfloat16")),
]


def removed(way: Way) -> tuple[Counter, list[str]]:
    """Return how many barriers each kernel reaches, and the Python lines of the barriers whose
    removal no launch shows.
    """
    launches = defaultdict(list)
    for taken in way.launches():
        launches[taken.name, taken.kernel.module.text].append(taken)
    reached, not_found = Counter(), []
    for same in launches.values():
        first = same[0]
        assert not any(taken.run()[0] for taken in same)
        for n in [*first.barriers, *first.warp_barriers]:
            if any(is_reached(taken, n) for taken in same):
                reached[first.name] += 1
                if not any(is_found(taken, n) for taken in same):
                    not_found.append(f"{first.name}, {first.python_line(n)} {first.python_text(n)}")
    return reached, not_found


def is_reached(taken: Taken, n: int) -> bool:
    lines = taken.lines
    lines[n] = "trap;"
    return any(finding.kind is Kind.TRAP for finding in taken.run("\n".join(lines))[0])


def is_found(taken: Taken, n: int) -> bool:
    """Return whether a race, with Python lines, is found if this barrier is removed."""
    findings = taken.run(taken.without(n))[0]
    return any(
        f.kind is Kind.RACE and all(site.file.endswith(".py") and site.text for site in f.sites) for f in findings
    )


def in_python(module: ModuleType) -> int:
    return len(BARRIER.findall(inspect.getsource(module)))


@pytest.mark.parametrize("way", [*QUICK, *(pytest.param(w, marks=pytest.mark.thorough) for w in THOROUGH)], ids=str)
def test_every_barrier_is_found(way: Way):
    reached, not_found = removed(way)
    assert not not_found
    for name, module in KERNELS[way.name].items():
        assert reached[name] == in_python(module), f"{name}: {reached}"
    if way.bias_rows:
        # These are summed over groups of lanes at the end, behind a separate barrier.
        one_row = way.bias_rows == 1
        assert reached["bias_gradient_kernel"] == in_python(bias_gradient) - (not one_row)


def test_all_modules_are_judged_and_have_no_barrier_of_another_kind():
    judged = {module for kernels in KERNELS.values() for module in kernels.values()} | {bias_gradient}
    assert {module.__name__ for module in judged} == {
        f"flash_attest.impls.numba.{path.stem}"
        for path in Path(fa2.__file__).parent.glob("*.py")
        if BARRIER.search(path.read_text())
    }
    for module in judged:
        assert not re.search(r"syncthreads_\w+\(|\.sync\(", inspect.getsource(module))


OWN = "the last round of a loop, which NVVM unrolled: each thread then reads what it wrote itself"
NOT_FOUND = {
    ("scan", "cuda.syncthreads()"): OWN,
    (
        "two_halves",
        "cuda.syncthreads()",
    ): "the last round of a loop, which NVVM unrolled: nobody loads or reads after it",
    ("last_block_sums", "cuda.syncthreads()"): """orders atomic operations only, which are no race: a block may count as
    finished before all its threads have added, so the sum can be wrong""",
}


@pytest.mark.thorough
def test_every_barrier_of_the_battery_is_found_or_known():
    count, not_found = 0, Counter()
    for name, subject in RIGHT.items():
        with taking() as seen:
            subject.found(getattr(subject.module, name), seed=0)
        for n in [*seen[0].barriers, *seen[0].warp_barriers]:
            count += 1
            assert is_reached(seen[0], n)
            if not is_found(seen[0], n):
                not_found[name, seen[0].python_text(n)] += 1
    assert count > 60 and not_found == dict.fromkeys(NOT_FOUND, 1)
