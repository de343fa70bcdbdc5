"""CUDA C++ with inline PTX: through nvcc it runs on the PTX engine, plain and traced; without nvcc
it is refused.
"""

import re
from pathlib import Path

import pytest
import torch

from flash_attest.emulator.cuda import CompileError, CudaError, Refused, load, nvcc
from flash_attest.emulator.errors import NotCovered
from flash_attest.emulator.observation import Kind
from flash_attest.races.tracing import trace
from tests.emulator.battery import read_battery
from tests.emulator.cuda.sources.scale import SCALE

SOURCES = Path(__file__).parent / "sources"
GEMM = SOURCES / "gemm_ptx.cu"
ROW, COLUMN, INNER = 64, 128, 96
needs_nvcc = pytest.mark.skipif(nvcc.nvcc() is None, reason="nvcc, which makes PTX of CUDA C++, is not installed")


@pytest.fixture
def no_nvcc(monkeypatch):
    monkeypatch.setattr(nvcc, "nvcc", lambda: None)


# ---- without nvcc --------------------------------------------------------------------------------

INLINE = '__global__ void k(unsigned* x) {\n  asm volatile("mov.u32 %0, %%laneid;" : "=r"(x[0]));\n}'


def test_without_nvcc_it_is_refused_and_the_message_says_what_is_missing(cu, no_nvcc):
    with pytest.raises(Refused) as refused:
        cu(INLINE, "k")
    assert refused.value.line == 2
    assert str(refused.value).endswith(
        "kernel.cu:2: not covered on the CPU: inline PTX; nvcc, which compiles it to PTX that runs here, was not found: "
        "install the CUDA toolkit, or name its nvcc in CUDACXX"
    )


def test_what_nvcc_would_not_help_with_is_refused_without_naming_it(cu, no_nvcc):
    with pytest.raises(Refused) as refused:
        cu("#include <torch/extension.h>\n__global__ void k(int* x) {}", "k")
    assert "nvcc" not in refused.value.reason


def test_nvcc_is_found_by_name_or_in_the_usual_places(monkeypatch, tmp_path):
    for folder in ("named", "home/bin", "path"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "nvcc").write_text("#!/bin/sh\n")
        (tmp_path / folder / "nvcc").chmod(0o755)
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert nvcc.nvcc() == str(tmp_path / "path/nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert nvcc.nvcc() == str(tmp_path / "home/bin/nvcc")
    monkeypatch.setenv("CUDACXX", str(tmp_path / "named/nvcc"))
    assert nvcc.nvcc() == str(tmp_path / "named/nvcc")
    monkeypatch.setenv("CUDACXX", str(tmp_path / "nothing"))
    assert nvcc.nvcc() is None


def test_a_way_that_there_is_not(cu):
    with pytest.raises(ValueError, match=r"through='clang': should be \"g\+\+\", \"nvcc\" or None"):
        cu(SCALE, "scale_all", through="clang")


# ---- a kernel for tensor cores -------------------------------------------------------------------


def matrices() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(ROW, INNER, generator=generator), torch.randn(INNER, COLUMN, generator=generator)
    return a.half(), b.half(), torch.zeros(ROW, COLUMN)


def check(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Check the result. Products are exact, and each of INNER sums is rounded to float32 once."""
    allowed = INNER * 2.0**-24 * (a.double().abs() @ b.double().abs())
    assert ((c.double() - a.double() @ b.double()).abs() <= allowed).all()


@needs_nvcc
def test_gemm_is_right_and_clean():
    cu = load(GEMM, "gemm", "gemm_kernel")
    a, b, c = matrices()
    assert cu.gemm(a, b, c, ROW, COLUMN, INNER) == 0
    check(a, b, c)
    for seed in range(4):
        a, b, c = matrices()
        assert (
            trace(lambda a=a, b=b, c=c: cu.gemm(a, b, c, ROW, COLUMN, INNER), seed=seed, switch=0.1 * (seed > 2)) == []
        )
        check(a, b, c)
    a, b, c = matrices()
    cu["gemm_kernel"].launch((COLUMN // 64, ROW // 64), 128)(a, b, c, COLUMN, INNER)
    check(a, b, c)


def tagged(text: str, tag: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if line.endswith(f"//! {tag}"))


@needs_nvcc
@pytest.mark.parametrize(
    "kind, cut, pending",
    [
        (Kind.ASYNC, "", 2),
        pytest.param(Kind.RACE, "filled", 1, marks=pytest.mark.thorough),  # each compiles a file
        pytest.param(Kind.RACE, "emptied", 1, marks=pytest.mark.thorough),
    ],
)
def test_a_missing_barrier_and_a_wait_that_is_too_weak_are_found(tmp_path, kind, cut, pending):
    text = GEMM.read_text()
    if cut:
        text = text.replace(f"__syncthreads();  //! {cut}", "")
    (tmp_path / "gemm.cu").write_text(text)
    cu = load(tmp_path / "gemm.cu", "gemm", defines={"PENDING": pending})
    places = {"tile_a": tagged(text, "left"), "tile_b": tagged(text, "right")}
    for seed in range(3):
        findings = trace(lambda: cu.gemm(*matrices(), ROW, COLUMN, INNER), seed=seed)
        assert {finding.kind for finding in findings} <= {Kind.ASYNC, Kind.RACE}
        for tile, line in places.items():
            expected = [f for f in findings if f.kind is kind and f.tensor == tile]
            assert any(line in {site.line for site in f.sites} for f in expected), findings
            sites = [site for f in expected for site in f.sites]
            assert {Path(site.file).name for site in sites} == {"gemm.cu"}
            assert {site.line for site in sites} <= {line, tagged(text, "copy")}


# ---- host code, memory, errors -------------------------------------------------------------------

HOST = """
#include <cstdio>
#include <cstdlib>
__constant__ int table[4];
static __device__ int counter;
template <int N> __global__ void k(unsigned* x, int n) {
    extern __shared__ unsigned s[];
    unsigned lane, three, bytes;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(three) : "r"(lane), "r"(5), "r"(9));
    asm("prmt.b32 %0, %1, 0, 0x0123;" : "=r"(bytes) : "r"(0x01020304 + lane));
    s[threadIdx.x] = (three ^ bytes) + table[lane % 4];
    __syncthreads();
    if (threadIdx.x < n) x[threadIdx.x] = s[N - 1 - threadIdx.x];
    atomicAdd(&counter, 1);
}
int host(unsigned* x, int n) {
    int values[4] = {1, 20, 300, 4000}, zero = 0, seen;
    cudaMemcpyToSymbol(table, values, sizeof values);
    cudaMemcpyToSymbol(counter, &zero, sizeof zero);
    unsigned* scratch;
    cudaMalloc(&scratch, n * sizeof *scratch);
    k<64><<<1, 64, 64 * sizeof(unsigned)>>>(scratch, n);
    cudaMemcpy(x, scratch, n * sizeof *x, cudaMemcpyDeviceToDevice);
    cudaFree(scratch);
    cudaMemcpyFromSymbol(&seen, counter, sizeof seen);
    return cudaDeviceSynchronize() == cudaSuccess ? seen : -1;
}
int large(unsigned* x, int bytes, int opted) {
    if (opted) cudaFuncSetAttribute(k<64>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    k<64><<<1, 64, bytes>>>(x, 64);
    return cudaGetLastError();
}
void unchecked(unsigned* x) { k<64><<<1, 2000, 256>>>(x, 64); }
void leaves() { exit(3); }
int capability() {
    cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    return 10 * p.major + p.minor;
}
"""


def expected() -> torch.Tensor:
    lanes = torch.arange(64) % 32
    values = (lanes ^ 5 ^ 9 ^ (0x04030201 + (lanes << 24))) + torch.tensor([1, 20, 300, 4000])[lanes % 4]
    return values.flip(0).to(torch.int32)


@needs_nvcc
def test_host_code_calls_the_emulators_runtime_api(cu):
    file = cu(HOST, "host", "large", "unchecked", "leaves", "capability", "k<64>")
    x = torch.zeros(64, dtype=torch.int32)
    assert file.host(x, 64) == 64 and torch.equal(x, expected())
    x = torch.zeros(64, dtype=torch.int32)
    assert trace(lambda: file.host(x, 64)) == [] and torch.equal(x, expected())
    assert file.capability() == 80
    assert file.large(x, 60000, 0) != 0 and file.large(x, 60000, 1) == 0
    with pytest.raises(CudaError, match="2000 threads a block"):
        file.unchecked(x)
    with pytest.raises(CudaError, match=r"the host code throws: exit\(3\)"):
        file.leaves()
    with pytest.raises(TypeError, match="k<64> is a kernel: launch it"):
        file["k<64>"](x, 64)
    (finding,) = trace(lambda: file["k<64>"].launch(1, 64, 256)(torch.zeros(60, dtype=torch.int32), 64))
    assert (finding.kind, finding.tensor) == (Kind.OUTSIDE, "x") and "x[threadIdx.x] = " in str(finding)


@needs_nvcc
def test_cooperative_groups_run(cu):
    text = """
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    template <bool WAITS> __global__ void total(const float* x, float* out) {
        __shared__ float sums[2];
        auto block = cg::this_thread_block();
        auto tile = cg::tiled_partition<32>(block);
        float sum = cg::reduce(tile, x[threadIdx.x], cg::plus<float>());
        if (tile.thread_rank() == 0) sums[tile.meta_group_rank()] = sum;
        if (WAITS) block.sync(); else tile.sync();
        if (threadIdx.x == 0) out[0] = sums[0] + sums[1];
    }
    """
    x, out = torch.arange(64.0), torch.zeros(1)
    file = cu(text, "total<true>", "total<false>")
    total = file["total<true>"].launch(1, 64)
    assert trace(lambda: total(x, out)) == [] and out.item() == x.sum()
    total = file["total<false>"].launch(1, 64)
    (kind,) = {finding.kind for finding in trace(lambda: total(x, out)) if finding.kind is not Kind.UNINITIALISED}
    assert kind is Kind.RACE


TOGETHER = """
__global__ void k(float* x) { x[blockIdx.x] = 1; }
int host(float* x, int blocks) {
    cudaLaunchAttribute how; how.id = cudaLaunchAttributeClusterDimension; how.val.clusterDim = {(unsigned)blocks, 1, 1};
    cudaLaunchConfig_t config = {}; config.gridDim = dim3(2), config.blockDim = dim3(1);
    config.attrs = &how, config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, k, x);
}
int grid(float* x) {
    void* of[] = {&x};
    return cudaLaunchCooperativeKernel((void*)k, dim3(2), dim3(1), of, 0, 0);
}
"""


@needs_nvcc
def test_clusters_and_cooperative_launches_are_refused_whatever_the_host_code_does_then(cu):
    """A cluster of one block is none."""
    file, x = cu(TOGETHER, "host", "grid", through="nvcc"), torch.zeros(2)
    with pytest.raises(NotCovered, match=r"kernel.cu: not covered on the CPU: cooperative launches"):
        file.grid(x)
    with pytest.raises(NotCovered, match=r"kernel.cu: not covered on the CPU: clusters of blocks"):
        file.host(x, 2)
    assert file.host(x, 1) == 0 and x.tolist() == [1, 1]


@needs_nvcc
def test_an_instruction_that_is_not_covered_is_refused_with_the_line_of_the_cu(cu):
    text = """
    __global__ void k(unsigned* x) {
        __shared__ unsigned long long bar;
        unsigned address = __cvta_generic_to_shared(&bar);
        asm volatile("mbarrier.arrive.noComplete.shared.b64 _, [%0], 1;" :: "r"(address));
    }
    void host(unsigned* x) { k<<<1, 1>>>(x); }
    """
    file = cu(text, "host")
    with pytest.raises(Refused, match=r"kernel.cu:4: not covered on the CPU: opcode mbarrier\.arrive\.noComplete"):
        file.host(torch.zeros(1, dtype=torch.int32))


@needs_nvcc
def test_errors_of_nvcc_speak_of_the_authors_line(cu):
    with pytest.raises(CompileError, match=r"kernel\.cu\(2\): error: .*unknown_thing"):
        cu('__global__ void k(int* x) {\n  unknown_thing(x); asm("");\n}', "k")
    with pytest.raises(
        CompileError, match=r"'nothing' should be a C\+\+ expression that names one function of kernel.cu"
    ):
        cu(INLINE, "nothing")


@needs_nvcc
@pytest.mark.thorough
def test_a_changed_header_is_compiled_anew(cu, tmp_path):
    text = '#include "by.h"\n__global__ void k(int* x) { asm("mov.u32 %0, %1;" : "=r"(x[0]) : "n"(BY)); }'
    for value in (3, 4, 3):
        (tmp_path / "by.h").write_text(f"#define BY {value}\n")
        x = torch.zeros(1, dtype=torch.int32)
        cu(text, "k").k.launch(1, 1)(x)
        assert x.item() == value


# ---- the battery of CUDA C++, through nvcc -------------------------------------------------------

# Differences between nvcc's code and the source. nvcc merges returns, so a thread that ran past a
# barrier looks like a thread that returned. It moves the line of a load to its use, removes
# accesses, and for sm_80 makes atomicAdd of bfloat16 from a plain read and a swap. A division by
# zero is not trapped on a GPU. assert and printf call functions.
DIFFERENT = re.compile(
    r"barriers:(past_the_end|trips<false, (true|false)>)|memory:(four_at_once<[02]>.*(68|62)|checked|divided)|"
    r"warps:chain<false>|atomics:narrow|.*printf"
)
THROUGH = [m for file in sorted((SOURCES / "battery").glob("*.cu")) for m in read_battery(file)]


@needs_nvcc
@pytest.mark.thorough
@pytest.mark.parametrize("micro", [m for m in THROUGH if not DIFFERENT.match(str(m))], ids=str)
def test_the_battery_has_the_same_verdicts_through_nvcc(micro):
    names = dict.fromkeys(m.name for m in THROUGH if m.file == micro.file)
    cu = load(micro.file, *names, through="nvcc")
    for seed in range(3):
        values = micro.values()
        function = cu[micro.name] if micro.shape is None else cu[micro.name].launch(*micro.launch)
        findings = trace(lambda f=function, v=values: f(*v.values()), seed=seed, limit=10.0)
        micro.check_findings(findings, f"through nvcc, seed={seed}")
        micro.check_results(values)
