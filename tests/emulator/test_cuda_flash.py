"""docs/examples/flash_forward.cu: right, without a race, and each of its barriers is needed, which the tracer shows.

A copy of the source without one __syncthreads is a racy kernel of which it is known where the race must be: between a
line that ran before that barrier and one that ran after it.
"""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from emulator.cuda import load, trace
from emulator.tracing import tracing
from impls import Precision
from tests.oracle.calls import attention, budget

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CU = EXAMPLES / "flash_forward.cu"
SOURCE = CU.read_text().splitlines()
BARRIERS = [n for n, line in enumerate(SOURCE, 1) if line.strip().startswith("__syncthreads();")]
# What each of them protects, in their order.
PROTECTED = [{"Q", "K"}, {"S"}, {"S", "factor"}, {"V", "factor"}, {"factor"}]
TILE, HEADDIM = 32, 8
# (batch, nheads, seqlen_q, seqlen_k, headdim, causal)
SHAPES = [
    (1, 1, 1, 1, 1, False), (2, 3, 32, 32, 16, False), (1, 2, 33, 65, 8, False), (1, 2, 70, 70, 5, True),
    (2, 1, 40, 100, 32, True), (1, 2, 65, 31, 8, True), (1, 1, 33, 33, 128, True), (2, 2, 5, 0, 4, False),
    (2, 2, 40, 0, 4, True), (2, 2, 0, 7, 4, False), (0, 2, 3, 3, 4, False),
]  # fmt: skip
SMALL = [
    (1, 1, 1, 1, 1, False),
    (2, 2, 33, 31, 3, True),
    (1, 2, 40, 70, 8, False),
    (1, 1, 70, 40, 4, True),
    (1, 2, 9, 0, 4, False),
]


@pytest.fixture(scope="module")
def example():
    """docs/examples/flash_forward.py as a module."""
    spec = importlib.util.spec_from_file_location("flash_forward_example", EXAMPLES / "flash_forward.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=range(len(BARRIERS)), ids=[f"line_{line}" for line in BARRIERS])
def without(request, tmp_path_factory):
    """(number of a barrier, flash_forward of a copy that lacks it); all other lines keep their numbers."""
    return request.param, lacking(request.param, tmp_path_factory.mktemp("flash"))


def lacking(barrier, folder):
    lines = list(SOURCE)
    lines[BARRIERS[barrier] - 1] = ""
    (folder / CU.name).write_text("\n".join(lines) + "\n")
    return load(folder / CU.name, "flash_forward").flash_forward


def tensors(batch, nheads, seqlen_q, seqlen_k, headdim, causal, seed=0):
    """q, k, v of a shape."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(batch, seqlen, nheads, headdim) for seqlen in (seqlen_q, seqlen_k, seqlen_k)]
    return [torch.randn(size, generator=generator) for size in sizes]


def run(function, q, k, v, causal=False):
    """The host function of the .cu -> out, lse; NaN where it writes nothing."""
    (batch, seqlen_q, nheads, headdim), seqlen_k = q.shape, k.shape[1]
    out, lse = torch.full_like(q, torch.nan), torch.full((batch, nheads, seqlen_q), torch.nan)
    assert function(q, k, v, out, lse, batch, nheads, seqlen_q, seqlen_k, headdim, headdim**-0.5, causal) == 0
    return out, lse


def is_right(q, k, v, out, lse, causal=False, softmax_scale=None):
    want = attention(q, k, v, causal=causal, softmax_scale=softmax_scale)
    sigma = budget(q, k, v, want, causal=causal, softmax_scale=softmax_scale, precision=Precision())
    return sigma.score("out", out, want.out).within and sigma.score("lse", lse, want.lse).within


def array_of(report):
    """Which part of the dynamic shared memory of a kernel with HEADDIM a report is about."""
    assert (report.space, report.tensor) == ("shared", "dynamic shared memory")
    sizes = {"Q": TILE * HEADDIM, "K": TILE * HEADDIM, "V": TILE * HEADDIM, "S": TILE * TILE, "factor": TILE}
    (left,) = report.index
    for name, size in sizes.items():
        if left < size:
            return name
        left -= size
    raise AssertionError(f"{report} is beyond the last array")


def stretch(line):
    """0 before the first barrier of the source, 1 behind it, and so on."""
    return sum(barrier < line for barrier in BARRIERS)


def stretches_after(barrier):
    """Where threads may be that have passed it: behind it, and at the top again if it is the last of its loop."""
    last_of_loop = SOURCE[BARRIERS[barrier]].strip() == "}"
    return {barrier + 1, 0} if last_of_loop else {barrier + 1}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("softmax_scale", [None, -0.3])
def test_is_attention(example, shape, softmax_scale):
    causal = shape[-1]
    q, k, v = tensors(*shape)
    out, lse = example.forward(q, k, v, causal=causal, softmax_scale=softmax_scale)
    assert is_right(q, k, v, out, lse, causal, softmax_scale)


def test_rows_without_keys_are_zero(example):
    q, k, v = tensors(1, 1, 50, 10, 4, True)
    out, lse = example.forward(q, k, v, causal=True)
    assert (out[:, :40] == 0).all() and (lse[..., :40] == -torch.inf).all()
    assert (out[:, 40:] != 0).all() and lse[..., 40:].isfinite().all()


def test_scores_of_minus_infinity_hide_keys(example):
    q, k, v = tensors(1, 1, 33, 70, 1, False)
    q, k = torch.ones_like(q), torch.zeros_like(k)
    k[:, :40] = -torch.inf  # the whole first tile, and a part of the second
    out, lse = example.forward(q, k, v)
    assert torch.allclose(out, v[:, 40:].mean(1, keepdim=True).expand_as(out), atol=1e-6)
    assert torch.allclose(lse, torch.tensor(30.0).log().expand_as(lse))


def test_a_head_dim_that_is_too_large_is_an_error(example):
    x = torch.zeros(1, 1, 1, 129)
    with pytest.raises(RuntimeError, match="flash_forward returns error 1"):
        example.forward(x, x, x)


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_has_no_race(example, shape):
    q, k, v = tensors(*shape)
    plain = example.forward(q, k, v, causal=shape[-1])
    for seed in range(20):
        with tracing(seed=seed, switch=0.05 * (seed % 2)) as found:
            traced = example.forward(q, k, v, causal=shape[-1])
        assert found.launches == 1
        assert [str(report) for report in found.reports] == [], f"seed {seed}"
        assert all(map(torch.equal, traced, plain)), f"seed {seed}"


def test_every_barrier_has_its_reason_behind_it():
    assert len(BARRIERS) == len(PROTECTED) == len(re.findall(r"__syncthreads\(\);  // \w", CU.read_text()))


@pytest.mark.parametrize("seed", range(3))
def test_every_barrier_is_needed(without, seed):
    barrier, function = without
    q, k, v = tensors(1, 1, 40, 70, HEADDIM, False)  # more than one tile of either
    reports = trace(lambda: run(function, q, k, v), seed=seed)
    races = [report for report in reports if report.kind == "race"]
    assert races, f"line {BARRIERS[barrier]} can go"
    assert {report.kind for report in reports} <= {"race", "uninitialised"}  # read before the other thread has written
    assert {array_of(report) for report in reports} <= PROTECTED[
        barrier
    ]  # the tiles are loaded on one line: one report
    for report in races:
        assert all(
            Path(site.file).name == CU.name and site.text == SOURCE[site.line - 1].strip() for site in report.sites
        )
        where = {stretch(site.line) for site in report.sites}
        assert where in [{barrier, after} for after in stretches_after(barrier)], str(report)


def test_switching_shows_what_a_race_can_do(without):
    """Without the third or the fifth barrier all is right while threads run in order, as thread i keeps row i and
    threads 4 i to 4 i + 3 use it: never before it. Without one of the others the result is wrong in order, too. With
    threads switched at random it is wrong without any of them.
    """
    barrier, function = without
    q, k, v = tensors(1, 1, 40, 70, HEADDIM, False)
    assert is_right(q, k, v, *run(function, q, k, v)) == (barrier in (2, 4))
    for seed in range(5):
        with tracing(seed=seed, switch=0.1) as found:
            out, lse = run(function, q, k, v)
        assert found.reports and not is_right(q, k, v, out, lse)
