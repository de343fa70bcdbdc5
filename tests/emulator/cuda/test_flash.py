"""examples/flash_forward.cu is correct and has no race, and the tracer shows that each of its
barriers is needed.

If one __syncthreads is removed in a copy of the source, the location of the race is known: it lies
between a line before that barrier and a line after it.
"""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from flash_attest.emulator.cuda import load
from flash_attest.emulator.observation import DYNAMIC_SHARED, Kind, Space
from flash_attest.impls import Precision
from flash_attest.races.tracing import trace, tracing
from tests.oracle.calls import attention, budget
from tests.places import ROOT

EXAMPLES = ROOT / "examples"
CU = EXAMPLES / "flash_forward.cu"
SOURCE = CU.read_text().splitlines()
BARRIERS = [n for n, line in enumerate(SOURCE, 1) if line.strip().startswith("__syncthreads();")]
# The arrays that each barrier protects.
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
    """Return examples/flash_forward.py as a module."""
    spec = importlib.util.spec_from_file_location("flash_forward_example", EXAMPLES / "flash_forward.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=range(len(BARRIERS)), ids=[f"line_{line}" for line in BARRIERS])
def without(request, tmp_path_factory):
    """Return (number of a barrier, flash_forward of a copy without it). The other lines keep their
    numbers.
    """
    return request.param, lacking(request.param, tmp_path_factory.mktemp("flash"))


def lacking(barrier, folder):
    lines = list(SOURCE)
    lines[BARRIERS[barrier] - 1] = ""
    (folder / CU.name).write_text("\n".join(lines) + "\n")
    return load(folder / CU.name, "flash_forward").flash_forward


def tensors(batch, nheads, seqlen_q, seqlen_k, headdim, causal, seed=0):
    """Return q, k, v of a shape."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(batch, seqlen, nheads, headdim) for seqlen in (seqlen_q, seqlen_k, seqlen_k)]
    return [torch.randn(size, generator=generator) for size in sizes]


def run(function, q, k, v, causal=False):
    """Call the host function of the .cu.

    Returns out and lse, with NaN in elements that it does not write.
    """
    (batch, seqlen_q, nheads, headdim), seqlen_k = q.shape, k.shape[1]
    out, lse = torch.full_like(q, torch.nan), torch.full((batch, nheads, seqlen_q), torch.nan)
    assert function(q, k, v, out, lse, batch, nheads, seqlen_q, seqlen_k, headdim, headdim**-0.5, causal) == 0
    return out, lse


def is_right(q, k, v, out, lse, causal=False, softmax_scale=None):
    want = attention(q, k, v, causal=causal, softmax_scale=softmax_scale)
    sigma = budget(q, k, v, want, causal=causal, softmax_scale=softmax_scale, precision=Precision())
    return sigma.score("out", out, want.out).within and sigma.score("lse", lse, want.lse).within


def array_of(finding):
    """Return the array in dynamic shared memory that a finding is about, for a kernel with
    HEADDIM.
    """
    assert (finding.space, finding.tensor) == (Space.SHARED, DYNAMIC_SHARED)
    sizes = {"Q": TILE * HEADDIM, "K": TILE * HEADDIM, "V": TILE * HEADDIM, "S": TILE * TILE, "factor": TILE}
    (index,) = finding.index
    for name, size in sizes.items():
        if index < size:
            return name
        index -= size
    raise AssertionError(f"{finding} is beyond the last array")


def stretch(line):
    """Return how many barriers the source has before a line."""
    return sum(barrier < line for barrier in BARRIERS)


def stretches_after(barrier):
    """Return the stretches that a thread can enter next: the one after the barrier, and the first
    one if the barrier is the last of its loop.
    """
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
    k[:, :40] = -torch.inf  # the whole first tile and a part of the second
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
        with tracing(seed=seed, switch=0.05 * (seed % 2)) as watch:
            traced = example.forward(q, k, v, causal=shape[-1])
        assert watch.launches == 1
        assert [str(finding) for finding in watch.findings] == [], f"seed {seed}"
        assert all(map(torch.equal, traced, plain)), f"seed {seed}"


def test_every_barrier_has_its_reason_in_a_comment():
    assert len(BARRIERS) == len(PROTECTED) == len(re.findall(r"__syncthreads\(\);  // \w", CU.read_text()))


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2))])
def test_every_barrier_is_needed(without, seed):
    barrier, function = without
    q, k, v = tensors(1, 1, 40, 70, HEADDIM, False)  # more than one tile of either
    findings = trace(lambda: run(function, q, k, v), seed=seed)
    races = [finding for finding in findings if finding.kind is Kind.RACE]
    assert races, f"line {BARRIERS[barrier]} is not needed"
    assert {finding.kind for finding in findings} <= {Kind.RACE, Kind.UNINITIALISED}  # a read can come before the write
    assert {array_of(finding) for finding in findings} <= PROTECTED[
        barrier
    ]  # the tiles are loaded on one line: one finding
    for finding in races:
        assert all(
            Path(site.file).name == CU.name and site.text == SOURCE[site.line - 1].strip() for site in finding.sites
        )
        where = {stretch(site.line) for site in finding.sites}
        assert where in [{barrier, after} for after in stretches_after(barrier)], str(finding)


def test_switching_shows_what_a_race_can_do(without):
    """With threads in order, the result is correct without the third or the fifth barrier: thread i
    writes row i, and threads 4 i to 4 i + 3 use the row, which never run before thread i. Without
    any other barrier the result is wrong. With threads switched at random, the result is wrong
    without any one of the five.
    """
    barrier, function = without
    q, k, v = tensors(1, 1, 40, 70, HEADDIM, False)
    assert is_right(q, k, v, *run(function, q, k, v)) == (barrier in (2, 4))
    for seed in range(5):
        with tracing(seed=seed, switch=0.1) as watch:
            out, lse = run(function, q, k, v)
        assert watch.findings and not is_right(q, k, v, out, lse)
