"""Memory of torch.empty that is read before it is written: named if results depend on it."""

import pytest
import torch

from flash_attest.emulator.cuda import load
from flash_attest.impls import Implementation, Supports, torch_math
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.races.tracing import tracing

SOURCE = """
__global__ void fill(float* scratch, const float* x, int n) {
    if (threadIdx.x < n) scratch[threadIdx.x] = x[threadIdx.x];
}
__global__ void take(const float* scratch, float* y, int n, float weight) {
    float padding = scratch[63];
    if (threadIdx.x < n) y[threadIdx.x] = scratch[threadIdx.x] + (weight != 0 ? weight * padding : 0);
}
__global__ void add(float* sum, float* y) {
    atomicAdd(sum, 1.0f);
    __syncthreads();
    if (threadIdx.x == 0) y[0] += 0 * atomicAdd(sum, 0.0f);
}
int pass(float* scratch, const float* x, float* y, int n, float weight) {
    fill<<<1, 64>>>(scratch, x, n);
    take<<<1, 64>>>(scratch, y, n, weight);
    return cudaGetLastError();
}
int sums(float* sum, float* y) {
    add<<<1, 32>>>(sum, y);
    return cudaGetLastError();
}
"""
RACES, VALUES, CASE = (
    laws()["test_no_race_is_traced"],
    laws()["test_out_matches_the_definition"],
    "seqlen_q=1 seqlen_k=1 headdim=1",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory, gxx):
    path = tmp_path_factory.mktemp("fresh") / "scratch.cu"
    path.write_text(SOURCE)
    return load(path, "pass", "sums")


def through(call) -> Implementation:
    """Return attention whose result a kernel passes on: call(x, y) writes x to y."""

    def forward(q, k, v):
        out, _ = torch_math.IMPL.forward(q, k, v)
        y = torch.zeros_like(out)
        call(out.flatten(), y.view(-1))
        return y

    return Implementation(
        name="scratch", forward=forward, supports=Supports(dtypes={torch.float32}, headdims={1}),
        devices={"cpu"}, traced=True,
    )  # fmt: skip


def verdict(law, impl):
    return judge(law, impl, Plan(case=parse_case(CASE), try_contract=False))


CALLS = {
    "padding counts": lambda f, x, y: f["pass"](torch.empty(64), x, y, x.numel(), 1.0),
    "padding is dropped": lambda f, x, y: f["pass"](torch.empty(64), x, y, x.numel(), 0.0),
    "scratch is zero": lambda f, x, y: f["pass"](torch.zeros(64), x, y, x.numel(), 1.0),
    "scratch is filled": lambda f, x, y: f["pass"](torch.empty(64).fill_(0.0), x, y, x.numel(), 1.0),
    "part is filled": lambda f, x, y: f["pass"](torch.empty(8, 8).index_fill_(0, torch.tensor(7), 0.0), x, y, x.numel(), 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_read_is_a_finding_if_results_depend_on_it(file, name):
    result = verdict(RACES, through(lambda x, y: CALLS[name](file, x, y)))
    if name == "padding counts":
        assert result.verdict == FAIL
        assert result.reason == "uninitialised: scratch[63], read before anything wrote it, scratch.cu:6"
        assert "scratch is (64,), float32, from torch.empty or similar" in result.message
    else:
        assert result.verdict == PASS, result.message


@pytest.mark.parametrize("make, verdict_", [(torch.empty, FAIL), (torch.zeros, PASS)])
def test_an_atomic_operation_reads(file, make, verdict_):
    def call(x, y):
        y.copy_(x)
        file["sums"](make(1), y)

    assert verdict(RACES, through(call)).verdict == verdict_


def test_wrong_values_name_the_read_that_explains_them(file):
    garbage = through(lambda x, y: file["pass"](torch.empty(64), x, y, x.numel(), 1.0) or y.add_(1))
    result = verdict(VALUES, garbage)
    assert result.verdict == FAIL and result.reason.endswith("(uninitialised, scratch.cu:6)"), result.reason
    harmless = through(lambda x, y: file["pass"](torch.empty(64), x, y, x.numel(), 0.0) or y.add_(1))
    result = verdict(VALUES, harmless)
    assert result.verdict == FAIL and "uninitialised" not in result.message, result.message


def test_memory_from_before_the_trace_is_not_followed(file):
    x, y, scratch = torch.ones(4), torch.zeros(4), torch.empty(64)
    with tracing() as found:
        file["pass"](scratch, x, y, 4, 1.0)
    assert found.findings == found.unwritten == []


def test_memory_that_is_used_again_counts_as_new(file):
    """The allocator gives the second tensor the address of the first."""
    x, y = torch.ones(4), torch.zeros(4)
    with tracing() as found:
        for make in (torch.zeros, torch.empty, torch.zeros):
            file["pass"](make(64), x, y, 4, 1.0)
    (finding,) = found.unwritten
    assert finding.count == 64 and finding.tensor == "scratch"
