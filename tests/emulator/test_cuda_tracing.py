"""Under the tracer: what a report says, to the word; what is asked of trace() itself; and what must not be reported."""

import textwrap
from pathlib import Path

import pytest
import torch

from emulator.cuda import CudaError, trace
from emulator.tracing import tracing
from races.finding import KINDS, Report

REVERSE = """
__global__ void reverse(float* out, const float* x, int n) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = tile[n - 1 - threadIdx.x];
}
"""


def reports_of(file, name, *arguments, grid=1, block=32, shared=0, **options) -> list[Report]:
    return trace(lambda: file[name].launch(grid, block, shared)(*arguments), **options)


def kinds(reports) -> list[str]:
    return sorted(report.kind for report in reports)


# --- the message ------------------------------------------------------------------------------------------------------


def test_a_race_is_told_with_both_lines(cu):
    (report,) = reports_of(cu(REVERSE, "reverse"), "reverse", torch.zeros(2), torch.ones(2), 2, block=2)
    assert str(report) == textwrap.dedent(
        """\
        race: tile[1] in shared memory, write after read, no barrier between, kernel.cu:4 and kernel.cu:3
          kernel.cu:4  thread 0 of block 0 reads   out[threadIdx.x] = tile[n - 1 - threadIdx.x];
          kernel.cu:3  thread 1 of block 0 writes  tile[threadIdx.x] = x[threadIdx.x];
          the write changed the value; 2 accesses"""
    )
    first, second = report.first, report.second
    assert (report.kind, report.space, report.tensor, report.index) == ("race", "shared", "tile", (1,))
    assert (first.what, first.thread, second.what, second.thread) == ("read", (0, 0, 0), "write", (1, 0, 0))
    assert first.site.function == "reverse(float*, float const*, int)" and Path(first.site.file).name == "kernel.cu"
    assert (report.same_value, report.count, report.layer) == (False, 2, "trace")


def test_an_element_of_a_strided_tensor_has_its_index(cu):
    text = "__global__ void k(float* x, int at) { x[at] = threadIdx.x; }"
    x = torch.zeros(4, 6, 8).transpose(0, 2)[1:5, :, ::2]  # (4, 6, 2), strides (1, 8, 96)
    (report,) = reports_of(cu(text, "k"), "k", x, 3 + 8 * 5 + 96, block=2)
    assert (report.tensor, report.index, report.space) == ("x", (3, 5, 1), "global")


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
    (report,) = reports_of(cu(text, "k"), "k", torch.zeros(3, 4), at, block=1)
    assert report.kind == "outside" and words in report.headline


def test_what_lies_between_the_elements_of_a_view_is_no_trespass_but_what_lies_around_it_is(cu):
    text = "__global__ void k(float* x, int at) { x[at] = 1; }"
    whole = torch.zeros(10)
    assert kinds(reports_of(cu(text, "k"), "k", whole[2:8], 6, block=1)) == ["outside"]
    assert whole[8] == 1  # it was written, as it would be on a GPU


def test_two_views_of_one_storage_are_told_apart(cu):
    text = "__global__ void k(float* left, float* right, int at) { left[at] = threadIdx.x; }"
    whole = torch.zeros(8)
    (report,) = reports_of(cu(text, "k"), "k", whole[:4], whole[4:], 5, block=2)
    assert (report.tensor, report.index) == ("right", (1,))


@pytest.mark.parametrize("value, same", [("7", True), ("threadIdx.x", False)])
def test_two_writes_are_a_race_also_if_the_value_is_the_same(cu, value, same):
    (report,) = reports_of(
        cu(f"__global__ void k(int* x) {{ x[0] = {value}; }}", "k"), "k", torch.zeros(1, dtype=torch.int32)
    )
    assert (report.kind, report.same_value, report.count) == ("race", same, 31)


def test_every_kind_has_words():
    for kind, words in KINDS.items():
        assert words in Report(kind, "", "", None, None).headline or kind == "race"


# --- what is found beside races ---------------------------------------------------------------------------------------


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
    (report,) = reports_of(cu(text, "k"), "k", out, grid=2, block=4)
    assert (report.kind, report.tensor, report.first.block) == ("uninitialised", "s", (1, 0, 0))
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
    (report,) = trace(lambda: file.host(out, 5, 0))
    assert (report.kind, report.tensor, report.index, report.count) == (
        "uninitialised",
        "memory of cudaMalloc",
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
    reports = reports_of(cu(text, "k"), "k", torch.zeros(32))
    assert {(r.kind, r.tensor, r.space) for r in reports} == {("race", "counter", "global")}


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
    assert reports_of(cu(text, "k"), "k", out, 16) == [] and out[3] == 2 * (15 + 3)


def test_a_launch_that_fails_unasked_is_a_report(cu):
    text = "__global__ void k(int* x) { x[0] = 1; }\nvoid host(int* x) { k<<<1, 1025>>>(x); }\n"
    (report,) = trace(lambda: cu(text, "host").host(torch.zeros(1, dtype=torch.int32)))
    assert report.headline == "launch: k at kernel.cu:2, 1025x1x1 = 1025 threads a block: at most 1024, and 64 in z"


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
    (report,) = reports_of(cu(text, "k"), "k", torch.zeros(8, dtype=torch.int32), block=1, limit=0.3)
    assert report.kind == "deadlock" and "had not ended after 0.3 s" in report.headline


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
    assert reports_of(file, "k", torch.zeros(6, dtype=torch.int32), out, grid=6, block=1) == []
    file.k.launch(6, 1)(torch.zeros(6, dtype=torch.int32), out)
    assert out.tolist() == [1, 2, 3, 4, 5, 6]


# --- order, and threads switched at random ----------------------------------------------------------------------------

LOST_UPDATE = "__global__ void k(int* x) { x[0] += 1; }"


def test_switching_threads_shows_what_a_race_does(cu):
    file, sums = cu(LOST_UPDATE, "k"), set()
    for seed in range(5):
        x = torch.zeros(1, dtype=torch.int32)
        assert kinds(reports_of(file, "k", x, grid=4, block=8, seed=seed, switch=0.3)) == ["race"]
        sums.add(x.item())
    assert max(sums) < 32 and len(sums) > 1
    x.zero_()
    reports_of(file, "k", x, grid=4, block=8)
    assert x.item() == 32  # one after another nothing is lost: the values alone do not show it


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
        assert reports_of(file, "k", out, x, grid=8, shared=128, seed=seed, switch=0.3) == []
        assert torch.equal(out, want)


def test_a_seed_gives_the_same_run_twice_and_another_seed_another_order(cu):
    text = "__global__ void k(int* x, int* order) { order[atomicAdd(x, 1)] = blockIdx.x * 8 + threadIdx.x; }"
    file = cu(text, "k")

    def order(seed):
        x, order = torch.zeros(1, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
        reports_of(file, "k", x, order, grid=4, block=8, seed=seed)
        return order.tolist()

    assert order(0) == list(range(32)) and order(3) == order(3) != order(4)
    assert sorted(order(3)) == list(range(32))


# --- trace() itself ---------------------------------------------------------------------------------------------------


def test_nothing_launched_is_no_verdict():
    with pytest.raises(RuntimeError, match=r"no kernel of a file that races\.cuda has loaded has run"):
        trace(lambda: None)


@pytest.mark.parametrize(
    "options, message",
    [({"switch": 1.5}, "switch=1.5: should be a chance"), ({"seed": -1}, "seed=-1"), ({"seed": 0.5}, "seed=0.5")],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        trace(lambda: None, **options)


def test_one_tracing_at_a_time_and_plain_mode_afterwards(cu):
    file, x = cu(LOST_UPDATE, "k"), torch.zeros(1, dtype=torch.int32)
    with tracing() as found:
        file.k.launch(2, 4)(x)
        file.k.launch(2, 4)(x)
        with pytest.raises(RuntimeError, match="one at a time"), tracing():
            pass
    assert found.launches == 2 and len(found.reports) == 1
    file.k.launch(2, 4)(x)  # plain: a race is no exception there
    assert len(found.reports) == 1 and x.item() == 24


def test_an_exception_inside_ends_the_tracing(cu):
    file, x = cu(LOST_UPDATE, "k"), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ZeroDivisionError), tracing():
        1 / 0  # noqa: B018
    file.k.launch(1, 1)(x)
    with pytest.raises(CudaError):
        file.k.launch(1, 2000)(x)


def test_inputs_are_where_they_were_and_launches_do_not_race_with_each_other(cu):
    file, x = cu("__global__ void k(int* x) { x[blockIdx.x] += 1; }", "k"), torch.zeros(4, dtype=torch.int32)
    with tracing() as found:
        for _ in range(3):
            file.k.launch(4, 1)(x)
    assert found.reports == [] and x.tolist() == [3] * 4
