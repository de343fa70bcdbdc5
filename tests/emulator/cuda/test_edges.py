"""Edge cases of tracing: compiler optimisations, calls that end early, processes and threads,
unusual memory.
"""

import os
import threading
import time

import numpy as np
import pytest
import torch

from flash_attest.emulator.cuda import CudaError
from flash_attest.emulator.observation import Kind
from flash_attest.races.tracing import trace
from tests.runs import python

pytestmark = pytest.mark.usefixtures("traced_first")


def found(file, *tensors, block=32, grid=1, shared=0, **options):
    """Return (kind, lines) of each finding in the kernel k."""
    findings = trace(lambda: file.k.launch(grid, block, shared)(*tensors), **options)
    return [(r.kind.value, *sorted({s.line for s in r.sites})) for r in findings]


# ---- accesses that a compiler changes ------------------------------------------------------------


@pytest.mark.parametrize("level", ["-O1", pytest.param("-O2", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("fence", ["", "__syncthreads();"])
def test_a_struct_passed_by_value_is_read_where_it_is_passed(cu, fence, level):
    text = f"""
    __device__ float dot(float4 a, float4 b) {{ return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }}
    __global__ void k(float* out, const float4* x) {{
        __shared__ float4 s[32];
        s[threadIdx.x] = x[threadIdx.x];
        {fence}
        out[threadIdx.x] = dot(x[threadIdx.x], s[31 - threadIdx.x]);
    }}
    """
    x, out = torch.randn(32, 4), torch.zeros(32)
    assert found(cu(text, "k", level=level), out, x) == ([] if fence else [("race", 4, 6)])
    if fence:
        assert torch.allclose(out, (x * x.flip(0)).sum(1), atol=1e-5)


@pytest.mark.parametrize("fence, want", [("__syncthreads();", []), ("", [("race", 3, 5)])])
def test_memset_and_memcpy_of_a_constant_size_are_seen(cu, fence, want):
    text = f"""
    __global__ void k(float* out, const float* x) {{
        __shared__ float a[16], b[16];
        if (threadIdx.x == 0) {{ memset(a, 0, sizeof a); memcpy(b, x, sizeof b); }}
        {fence}
        if (threadIdx.x > 15) out[threadIdx.x] = a[threadIdx.x - 16] + b[threadIdx.x - 16];
    }}
    """
    assert sorted(set(found(cu(text, "k"), torch.zeros(32), torch.ones(16)))) == want


def test_a_memset_past_the_end_is_seen(cu):
    text = "__global__ void k(float* out) { if (threadIdx.x == 0) memset(out + 4, 0, 32); }"
    assert found(cu(text, "k"), torch.zeros(8)) == [("outside", 1)]


def test_shared_memory_that_nothing_ever_writes_is_a_finding(cu):
    text = "__global__ void k(float* out) {\n  __shared__ float s[32];\n  out[threadIdx.x] = s[threadIdx.x];\n}"
    assert found(cu(text, "k"), torch.zeros(32)) == [("uninitialised", 3)]


def test_one_finding_for_a_pair_of_lines(cu):
    text = """
    __global__ void k(float4* out) {
        out[0] = float4{1, 2, 3, 4};
    }
    """
    assert found(cu(text, "k"), torch.zeros(4)) == [("race", 2)]


# ---- leaving -------------------------------------------------------------------------------------


def test_leaving_by_a_return_in_a_device_function_is_leaving(cu):
    text = """
    __device__ void body(float* x, int n) {
        if (threadIdx.x >= n) return;
        x[threadIdx.x] = 1;
        __syncthreads();
        x[threadIdx.x] += x[0] * 0;
    }
    __global__ void k(float* x) { body(x, 8); }
    """
    assert all(kind != "barrier" for kind, *_ in found(cu(text, "k"), torch.zeros(8)))


def test_a_return_of_a_helper_is_not_leaving(cu):
    text = """
    __global__ void k(float* x) {
        auto helper = [&](int i) { if (i > 3) return; x[i] = 1; };
        helper(threadIdx.x);
        if (threadIdx.x < 4) {
            __syncthreads();
        } else {
            x[threadIdx.x] = 2;
        }
    }
    """
    assert found(cu(text, "k"), torch.zeros(32)) == [("barrier", 5)]


# ---- launches ------------------------------------------------------------------------------------


def test_static_shared_memory_counts_at_a_launch(cu):
    text = """
    __global__ void k(float* x) { __shared__ float a[8192]; a[threadIdx.x] = 1; x[threadIdx.x] = a[threadIdx.x]; }
    __global__ void large(float* x) { __shared__ float a[16384]; a[threadIdx.x] = 1; x[threadIdx.x] = a[threadIdx.x]; }
    """
    file, x = cu(text, "k", "large"), torch.zeros(32)
    assert found(file, x, shared=16384) == []
    with pytest.raises(CudaError, match="k, 20000 bytes of dynamic shared memory beside 32768 static, at most 49152"):
        file.k.launch(1, 32, 20000)(x)
    with pytest.raises(CudaError, match="large, 65536 bytes of static shared memory: at most 49152"):
        file.large.launch(1, 32)(x)


def test_a_failed_launch_is_no_verdict_and_a_grid_may_be_too_large(cu):
    text = """
    __global__ void k(int* x, int n = 3) { x[0] = n; }
    int host(int* x) { k<<<1, 2048>>>(x); return cudaGetLastError(); }
    int defaults(int* x) { k<<<1, 1>>>(x); return cudaGetLastError(); }
    """
    file, x = cu(text, "k", "host", "defaults"), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="the host code checked for the error of a failed one"):
        trace(lambda: file.host(x))
    with pytest.raises(CudaError, match=r"more than 2\^31 blocks"):
        file.k.launch((65536, 32768, 2), 1)(x, 1)
    assert file.defaults(x) == 0 and x.item() == 3


def test_findings_are_kept_if_the_call_raises(cu):
    text = "__global__ void k(float* x) { *reinterpret_cast<float4*>(x + 1) = float4{1, 2, 3, 4}; }\n"
    file = cu(text + "int host(float* x) { k<<<1, 1>>>(x); return cudaDeviceSynchronize(); }\n", "host")

    def checked():
        if status := file.host(torch.zeros(8)):
            raise RuntimeError(f"error {status}")

    assert [r.kind for r in trace(checked)] == [Kind.MISALIGNED]


def test_exceptions_and_exit_of_host_code_end_the_call_alone(cu):
    text = """
    #include <stdexcept>
    __global__ void bad(int* x) { __trap(); }
    void throws(int* x) { throw std::runtime_error("head dim 3"); }
    void checks(int* x) { bad<<<1, 1>>>(x); if (cudaDeviceSynchronize()) { exit(EXIT_FAILURE); } }
    void leaves(int* x) { std::exit(3); }
    """
    file, x = cu(text, "throws", "checks", "leaves"), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(CudaError, match="the host code throws: head dim 3"):
        file.throws(x)
    with pytest.raises(CudaError, match=r"exit\(3\)"):
        file.leaves(x)
    assert [r.kind for r in trace(lambda: file.checks(x))] == [Kind.TRAP]


def test_kernels_are_launched_and_host_functions_are_called(cu):
    file = cu("__global__ void k(int* x) {}\nint host(int* x, short n) { return n; }", "k", "host")
    x = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(TypeError, match="k is a kernel: launch it"):
        file.k(x)
    with pytest.raises(TypeError, match="host is a host function, not a kernel"):
        file.host.launch(1, 1)
    with pytest.raises(TypeError, match="n: should be from -32768 to 32767, is 40000"):
        file.host(x, 40000)
    with pytest.raises(TypeError, match="n: should be an integer, is inf"):
        file.host(x, float("inf"))


# ---- time, processes, threads --------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", ["for (;;) __syncthreads();", "for (;;) __syncwarp();", "for (;;) atomicAdd(x + threadIdx.x % 8, 1);"]
)
def test_an_endless_loop_is_a_deadlock(cu, body):
    file = cu(f"__global__ void k(int* x) {{ {body} }}", "k")
    for _ in range(2):
        started = time.monotonic()
        assert [kind for kind, *_ in found(file, torch.zeros(8, dtype=torch.int32), limit=0.2)] == ["deadlock"]
        assert time.monotonic() - started < 60  # it does not hang


@pytest.mark.parametrize("limit", [0, -1, float("inf"), float("nan"), "1"])
def test_a_limit_is_seconds(limit):
    with pytest.raises(ValueError, match=r"limit=.*: should be seconds"):
        trace(lambda: None, limit=limit)


def test_a_forked_process_has_memory_of_its_own(cu):
    file = cu("__global__ void k(int* x, int n) { for (int i = 0; i < 200; ++i) x[threadIdx.x] += n; }", "k")
    x = torch.zeros(32, dtype=torch.int32)
    file.k.launch(1, 32)(x, 1)
    child = os.fork()
    n, wrong = (3, 0) if child else (5, 0)
    for _ in range(200):
        x.zero_()
        file.k.launch(1, 32)(x, n)
        wrong += not bool((x == 200 * n).all())
    if not child:
        os._exit(wrong > 0)
    assert wrong == 0 and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_ctrl_c_while_another_thread_launches(tmp_path):
    (tmp_path / "k.cu").write_text("__global__ void k(volatile int* x) { while (x[0] == 0) {} }\n")
    script = f"""
import threading, torch
from flash_attest.emulator.cuda import CudaError, load
from tests.emulator.cuda.ctrl_c import press
k = load({str(tmp_path / "k.cu")!r}, "k").k
def work():
    try:
        k.launch(1, 1)(torch.zeros(1, dtype=torch.int32))
    except BaseException as error:
        print(type(error).__name__, flush=True)
thread = threading.Thread(target=work)
thread.start()
press(after=0.5)
try:
    thread.join()
except KeyboardInterrupt:
    print("interrupted", flush=True)
thread.join()
"""
    ended = python("-c", script)
    assert ended.returncode in (0, 1, -2, 130) and "interrupted" in ended.stdout, ended.stderr


def test_threads_take_turns(cu):
    file = cu("__global__ void k(int* x, int n) { x[threadIdx.x] = n; }", "k")
    wrong = []

    def work(n):
        x = torch.zeros(32, dtype=torch.int32)
        for _ in range(50):
            file.k.launch(1, 32)(x, n)
            wrong.extend([n] if not bool((x == n).all()) else [])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- memory --------------------------------------------------------------------------------------

ADD = "__global__ void k(float* out, const float* x) { out[threadIdx.x] = x[threadIdx.x] + 1; }"


def test_read_only_memory_may_be_an_input(cu, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(32, dtype=np.float32))
    with pytest.warns(UserWarning, match="not writable"):
        x = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="r"))
    out = torch.zeros(32)
    cu(ADD, "k").k.launch(1, 32)(out, x)
    assert torch.equal(out, torch.arange(32.0) + 1)


def test_storages_that_overlap_are_one(cu):
    memory = np.zeros(12, dtype=np.float32)
    x, out = torch.from_numpy(memory), torch.from_numpy(memory[4:])
    file = cu(ADD, "k")
    file.k.launch(1, 8)(out, x)
    assert memory.tolist() == [0] * 4 + [1] * 4 + [2] * 4  # thread after thread
    assert ("race", 1) in found(file, out, x, block=8)


def test_empty_tensors_are_taken(cu):
    file = cu(
        "__global__ void k(float* out, const float* x, int n) { if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x]; }",
        "k",
    )
    file.k.launch(1, 8)(torch.zeros(0), torch.zeros(4)[4:], 0)
    assert found(file, torch.zeros(0, 3), torch.zeros(0), 1, block=1) == [("outside", 1)]
