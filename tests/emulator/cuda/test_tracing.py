"""Tracing: the exact text of a finding, the options of trace(), and correct kernels that must have
no finding.
"""

import textwrap
from pathlib import Path

import pytest
import torch

from flash_attest.emulator.cuda import CudaError
from flash_attest.emulator.observation import Action, Apart, Kind, Space
from flash_attest.races.finding import Finding, Layer
from flash_attest.races.tracing import trace, tracing

pytestmark = pytest.mark.usefixtures("traced_first")

REVERSE = """
__global__ void reverse(float* out, const float* x, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = tile[n - 1 - threadIdx.x];
}
"""


def findings_of(file, name, *arguments, grid=1, block=32, shared=0, **options) -> list[Finding]:
    return trace(lambda: file[name].launch(grid, block, shared)(*arguments), **options)


def kinds(findings) -> list[str]:
    return sorted(finding.kind.value for finding in findings)


# ---- the message ---------------------------------------------------------------------------------


def test_a_race_is_described_with_both_lines(cu):
    (finding,) = findings_of(cu(REVERSE, "reverse"), "reverse", torch.zeros(2), torch.ones(2), 2, block=2)
    assert str(finding) == textwrap.dedent(
        """\
        race: tile[1] in shared memory, write after read, no barrier between, kernel.cu:4 and kernel.cu:3
          kernel.cu:4  thread 0 of block 0 reads   out[threadIdx.x] = tile[n - 1 - threadIdx.x];
          kernel.cu:3  thread 1 of block 0 writes  tile[threadIdx.x] = x[threadIdx.x];
          the write changed the value; 2 accesses"""
    )
    first, second = finding.first, finding.second
    assert (finding.kind, finding.space, finding.tensor, finding.index) == (Kind.RACE, Space.SHARED, "tile", (1,))
    assert (first.what, first.thread, second.what, second.thread) == (Action.READ, (0, 0, 0), Action.WRITE, (1, 0, 0))
    assert first.site.function == "reverse(float*, float const*, int)" and Path(first.site.file).name == "kernel.cu"
    assert (finding.same_value, finding.count, finding.layer) == (False, 2, Layer.TRACE)


COUNT = """
__global__ void count(float* x) {
    x[threadIdx.x % 2] += 1.0f;
}
"""


@pytest.mark.parametrize("grid, block, apart", [(1, 32, Apart.LANES), (1, 96, Apart.WARPS), (3, 96, Apart.BLOCKS)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_threads_of_a_race_are_as_far_apart_as_any_that_race(cu, grid, block, apart, seed):
    """Lanes of one warp race first in each of these launches, which reads as harmless."""
    for finding in findings_of(cu(COUNT, "count"), "count", torch.zeros(2), grid=grid, block=block, seed=seed):
        one, other = finding.sides
        pairs = {
            Apart.BLOCKS: one.block != other.block,
            Apart.WARPS: one.block == other.block and one.thread[0] // 32 != other.thread[0] // 32,
            Apart.LANES: one.block == other.block and one.thread[0] // 32 == other.thread[0] // 32,
        }
        assert finding.apart is apart and pairs[apart], finding


BRANCHES = """
#define WAIT __syncthreads()
__global__ void one_line(float* x) {
    __shared__ float tile[64];
    if (threadIdx.x < 32) { tile[threadIdx.x] = 1; __syncthreads(); } else { tile[threadIdx.x] = 1; __syncthreads(); }
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
__global__ void macro(float* x) {
    __shared__ float tile[64];
    if (threadIdx.x < 32) { tile[threadIdx.x] = 1; WAIT; } else { tile[threadIdx.x] = 1; WAIT; }
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
__global__ void votes(float* x) {
    int other = threadIdx.x < 32 ? __syncthreads_or(threadIdx.x == 0) : __syncthreads_or((threadIdx.x == 0));
    x[threadIdx.x] = other;
}
__global__ void right(float* x) {
    __shared__ float tile[64];
    if (blockIdx.x) { tile[threadIdx.x] = 1; WAIT; } else { tile[threadIdx.x] = 2; WAIT; }
    x[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x] + __syncthreads_or(0);
}
"""


@pytest.mark.parametrize("level", ["-O1", pytest.param("-O2", marks=pytest.mark.thorough)])
def test_equal_barriers_of_two_branches_on_one_line_are_two(cu, level):
    """g++ may merge calls with equal arguments, so each barrier passes its number in the file."""
    file = cu(BRANCHES, "one_line", "macro", "votes", "right", level=level)
    for name in ("one_line", "macro", "votes"):
        (finding,) = findings_of(file, name, torch.zeros(64), block=64)
        assert finding.headline.startswith("barrier: threads of one block wait at different barriers, kernel.cu:"), name
        with pytest.raises(CudaError, match="different barriers"):
            file[name].launch(1, 64)(torch.zeros(64))
    assert findings_of(file, "right", torch.zeros(128), grid=2, block=64) == []


def test_an_element_of_a_strided_tensor_has_its_index(cu):
    text = "__global__ void k(float* x, int at) { x[at] = threadIdx.x; }"
    x = torch.zeros(4, 6, 8).transpose(0, 2)[1:5, :, ::2]  # (4, 6, 2), strides (1, 8, 96)
    (finding,) = findings_of(cu(text, "k"), "k", x, 3 + 8 * 5 + 96, block=2)
    assert (finding.tensor, finding.index, finding.space) == ("x", (3, 5, 1), Space.GLOBAL)


@pytest.mark.parametrize(
    "at, words",
    [
        (12, "x, writes 4 bytes right past the end of x, whose shape is (3, 4)"),
        (15, "x, writes 4 bytes 12 bytes past the end of x, whose shape is (3, 4)"),
        (-1, "x, writes 4 bytes 4 bytes before the start of x"),
        (1 << 40, "where no tensor is"),
    ],
)
def test_an_access_outside_says_how_far(cu, at, words):
    text = "__global__ void k(float* x, long long at) { x[at] = 1; }"
    (finding,) = findings_of(cu(text, "k"), "k", torch.zeros(3, 4), at, block=1)
    assert finding.kind is Kind.OUTSIDE and words in finding.headline


def test_an_access_outside_of_a_view_is_found(cu):
    text = "__global__ void k(float* x, int at) { x[at] = 1; }"
    whole = torch.zeros(10)
    assert kinds(findings_of(cu(text, "k"), "k", whole[2:8], 6, block=1)) == ["outside"]
    assert whole[8] == 1  # it was written, as on a GPU


def test_two_views_of_one_storage_are_told_apart(cu):
    text = "__global__ void k(float* left, float* right, int at) { left[at] = threadIdx.x; }"
    whole = torch.zeros(8)
    (finding,) = findings_of(cu(text, "k"), "k", whole[:4], whole[4:], 5, block=2)
    assert (finding.tensor, finding.index) == ("right", (1,))


@pytest.mark.parametrize("value, same", [("7", True), ("threadIdx.x", False)])
def test_two_writes_are_a_race_also_if_the_value_is_the_same(cu, value, same):
    (finding,) = findings_of(
        cu(f"__global__ void k(int* x) {{ x[0] = {value}; }}", "k"), "k", torch.zeros(1, dtype=torch.int32)
    )
    assert (finding.kind, finding.same_value, finding.count) == (Kind.RACE, same, 31)


def test_every_kind_has_words():
    for kind in Kind:
        assert kind.meaning in Finding(kind, Space.NONE, "", None, None).headline


# ---- findings other than races -------------------------------------------------------------------


def test_shared_memory_is_new_in_every_block(cu):
    text = """
    __global__ void k(float* out) {
        __shared__ float s[4];
        if (blockIdx.x == 0) s[threadIdx.x] = 1;
        __syncthreads();
        out[blockIdx.x * 4 + threadIdx.x] = s[threadIdx.x];
    }
    """
    out = torch.zeros(8)
    (finding,) = findings_of(cu(text, "k"), "k", out, grid=2, block=4)
    assert (finding.kind, finding.tensor, finding.first.block) == (Kind.UNINITIALISED, "s", (1, 0, 0))
    assert out[4:].isnan().all()


def test_memory_of_cuda_malloc_is_followed(cu):
    text = """
    __global__ void fill(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 1; }
    __global__ void sum(float* out, const float* x) { out[threadIdx.x] = x[threadIdx.x]; }
    void host(float* out, int n, int set) {
        float* scratch;
        cudaMalloc(&scratch, 8 * sizeof(float));
        if (set) cudaMemset(scratch, 0, 8 * sizeof(float));
        fill<<<1, 8>>>(scratch, n);
        sum<<<1, 8>>>(out, scratch);
        cudaFree(scratch);
        if (set == 2) sum<<<1, 8>>>(out, scratch);
    }
    """
    file, out = cu(text, "host"), torch.zeros(8)
    assert trace(lambda: file.host(out, 8, 0)) == [] == trace(lambda: file.host(out, 5, 1))
    (finding,) = trace(lambda: file.host(out, 5, 0))
    assert (finding.kind, finding.tensor, finding.index, finding.count) == (
        Kind.UNINITIALISED,
        "allocated memory",
        (5,),
        3,
    )
    assert kinds(trace(lambda: file.host(out, 8, 2))) == ["outside"]  # after cudaFree


def test_global_variables_have_names_and_races(cu):
    text = """
    __device__ int counter;
    __constant__ float table[4] = {1, 2, 3, 4};
    __global__ void k(float* out) { counter += 1; out[threadIdx.x] = table[threadIdx.x % 4]; }
    """
    findings = findings_of(cu(text, "k"), "k", torch.zeros(32))
    assert {(r.kind, r.tensor, r.space) for r in findings} == {(Kind.RACE, "counter", Space.GLOBAL)}


@pytest.mark.parametrize(
    "body, headline",
    [
        ("scratch[n - 1] = 1;", "outside: scratch[64], writes 4 bytes right past the end of scratch"),
        ("out[0] = taps[n - 60];", "outside: taps[5], reads 4 bytes right past the end of taps"),
    ],
)
def test_an_access_past_a_global_variable_is_found_and_harms_nothing(cu, body, headline):
    """The emulator's own data follow the variable."""
    text = f"""
    __device__ float scratch[64];
    __constant__ float taps[5];
    __global__ void k(float* out, int n) {{ {body} }}
    """
    file, out = cu(text, "k"), torch.zeros(1)
    (finding,) = findings_of(file, "k", out, 65, block=1)
    assert finding.headline.startswith(headline), finding.headline
    assert findings_of(file, "k", out, 64 if "scratch" in body else 60, block=1) == []


def test_local_arrays_belong_to_their_thread(cu):
    text = """
    __device__ void twice(float* a, int n) { for (int i = 0; i < n; ++i) a[i] *= 2; }
    __global__ void k(float* out, int n) {
        float mine[16];
        for (int i = 0; i < n; ++i) mine[i] = i + threadIdx.x;
        twice(mine, n);
        __syncthreads();
        out[threadIdx.x] = mine[n - 1];
    }
    """
    out = torch.zeros(32)
    assert findings_of(cu(text, "k"), "k", out, 16) == [] and out[3] == 2 * (15 + 3)


def test_a_failed_launch_that_is_not_checked_is_a_finding(cu):
    text = "__global__ void k(int* x) { x[0] = 1; }\nvoid host(int* x) { k<<<1, 1025>>>(x); }\n"
    (finding,) = trace(lambda: cu(text, "host").host(torch.zeros(1, dtype=torch.int32)))
    assert finding.headline == "launch: k at kernel.cu:2, 1025x1x1 = 1025 threads a block: at most 1024, and 64 in z"


def test_after_a_launch_was_stopped_nothing_more_is_launched(cu):
    text = """
    __global__ void bad(int* x) { __trap(); }
    __global__ void good(int* x) { x[0] = 1; }
    int host(int* x) { bad<<<1, 1>>>(x); good<<<1, 1>>>(x); return cudaGetLastError(); }
    """
    x, file = torch.zeros(1, dtype=torch.int32), cu(text, "host")
    assert kinds(trace(lambda: file.host(x))) == ["trap"] and x.item() == 0


def test_a_launch_that_takes_too_long_is_a_deadlock(cu):
    text = "__global__ void k(int* x) { for (unsigned long long i = 0; i < 1ull << 62; ++i) x[i % 8] += 1; }"
    (finding,) = findings_of(cu(text, "k"), "k", torch.zeros(8, dtype=torch.int32), block=1, limit=0.3)
    assert finding.kind is Kind.DEADLOCK and "had not ended after 0.3 s" in finding.headline


def test_a_launch_that_others_keep_from_running_is_not_too_long(cu):
    text = """
    extern "C" int usleep(unsigned);
    __global__ void k(int* x) { for (int i = 0; i < 20; ++i) usleep(50000); x[0] = 1; }
    """
    x = torch.zeros(1, dtype=torch.int32)
    assert findings_of(cu(text, "k"), "k", x, block=1, limit=0.3) == [] and x.item() == 1


def test_blocks_that_wait_for_later_blocks_are_let_run(cu):
    text = """
    __global__ void k(int* flags, int* out) {
        int next = blockIdx.x + 1;
        if (next < gridDim.x) while (atomicAdd(&flags[next], 0) == 0) {}
        out[blockIdx.x] = next;
        atomicExch(&flags[blockIdx.x], 1);
    }
    """
    out = torch.zeros(6, dtype=torch.int32)
    file = cu(text, "k")
    assert findings_of(file, "k", torch.zeros(6, dtype=torch.int32), out, grid=6, block=1) == []
    file.k.launch(6, 1)(torch.zeros(6, dtype=torch.int32), out)
    assert out.tolist() == [1, 2, 3, 4, 5, 6]


# ---- order, and threads switched at random -------------------------------------------------------

LOST_UPDATE = "__global__ void k(int* x) { x[0] += 1; }"


def test_switching_threads_shows_what_a_race_does(cu):
    file, sums = cu(LOST_UPDATE, "k"), set()
    for seed in range(5):
        x = torch.zeros(1, dtype=torch.int32)
        assert kinds(findings_of(file, "k", x, grid=4, block=8, seed=seed, switch=0.3)) == ["race"]
        sums.add(x.item())
    assert max(sums) < 32 and len(sums) > 1
    x.zero_()
    findings_of(file, "k", x, grid=4, block=8)
    assert x.item() == 32  # in order no update is lost: the values alone do not show the race


def test_switching_threads_does_not_disturb_what_is_right(cu):
    text = """
    __global__ void k(int* out, const int* x) {
        __shared__ int tile[32];
        extern __shared__ int more[];
        tile[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
        more[threadIdx.x] = blockIdx.x;
        __syncthreads();
        out[blockIdx.x * 32 + threadIdx.x] = tile[31 - threadIdx.x] + more[(threadIdx.x + 1) % 32];
    }
    """
    x, out = torch.arange(256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    want = (x.view(8, 32).flip(1) + torch.arange(8).view(8, 1)).flatten()
    file = cu(text, "k")
    for seed in range(4):
        out.zero_()
        assert findings_of(file, "k", out, x, grid=8, shared=128, seed=seed, switch=0.3) == []
        assert torch.equal(out, want)


def test_a_seed_gives_the_same_run_twice_and_another_seed_another_order(cu):
    text = "__global__ void k(int* x, int* order) { order[atomicAdd(x, 1)] = blockIdx.x * 8 + threadIdx.x; }"
    file = cu(text, "k")

    def order(seed):
        x, order = torch.zeros(1, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
        findings_of(file, "k", x, order, grid=4, block=8, seed=seed)
        return order.tolist()

    assert order(0) == list(range(32)) and order(3) == order(3) != order(4)
    assert sorted(order(3)) == list(range(32))


# ---- trace() itself ------------------------------------------------------------------------------


def test_no_launch_is_an_error():
    with pytest.raises(RuntimeError, match="no traced kernel was launched"):
        trace(lambda: None)


@pytest.mark.parametrize(
    "options, message",
    [({"switch": 1.5}, "switch=1.5: should be a probability"), ({"seed": -1}, "seed=-1"), ({"seed": 0.5}, "seed=0.5")],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        trace(lambda: None, **options)


def test_one_tracing_at_a_time_and_plain_mode_afterwards(cu):
    file, x = cu(LOST_UPDATE, "k"), torch.zeros(1, dtype=torch.int32)
    with tracing() as watch:
        file.k.launch(2, 4)(x)
        file.k.launch(2, 4)(x)
        with pytest.raises(RuntimeError, match="one at a time"), tracing():
            pass
    assert watch.launches == 2 and len(watch.findings) == 1
    file.k.launch(2, 4)(x)  # plain mode, in which a race is not an error
    assert len(watch.findings) == 1 and x.item() == 24


def test_an_exception_inside_ends_the_tracing(cu):
    file, x = cu(LOST_UPDATE, "k"), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ZeroDivisionError), tracing():
        1 / 0  # noqa: B018
    file.k.launch(1, 1)(x)
    with pytest.raises(CudaError):
        file.k.launch(1, 2000)(x)


def test_inputs_are_where_they_were_and_launches_do_not_race_with_each_other(cu):
    file, x = cu("__global__ void k(int* x) { x[blockIdx.x] += 1; }", "k"), torch.zeros(4, dtype=torch.int32)
    with tracing() as watch:
        for _ in range(3):
            file.k.launch(4, 1)(x)
    assert watch.findings == [] and x.tolist() == [3] * 4
