"""A .cu on the CPU: loaded, called with tensors, compiled once; and what is wrong with it is said in words."""

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
import torch

from properties.far import untouched
from races.cuda import CompileError, CudaError, NoCompiler, Refused, build, load

SCALE = """
#include <cuda_runtime.h>
template <class T>
__global__ void scale(T* out, const T* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = T(float(x[i]) * by);
}
int scale_all(float* out, const float* x, float by, int n) {
    scale<<<(n + 31) / 32, 32>>>(out, x, by, n);
    return cudaGetLastError();
}
"""


@pytest.fixture
def cu(tmp_path):
    """text -> a loaded file."""

    def made(text, *names, **options):
        path = tmp_path / "kernel.cu"
        path.write_text(textwrap.dedent(text))
        return load(path, *names, **options)

    return made


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """An empty cache of compiled files."""
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# --- calling ----------------------------------------------------------------------------------------------------------


def test_a_host_function_is_called_as_it_stands(cu):
    x, out = torch.randn(100), torch.zeros(100)
    assert cu(SCALE, "scale_all").scale_all(out, x, 2.5, 100) == 0
    assert torch.equal(out, x * 2.5)


@pytest.mark.parametrize("dtype, name", [(torch.float32, "float"), (torch.float64, "double"), (torch.int32, "int")])
def test_a_kernel_is_launched_by_its_template_arguments(cu, dtype, name):
    x = torch.arange(70).to(dtype)
    out = torch.zeros_like(x)
    cu(SCALE, f"scale<{name}>")[f"scale<{name}>"].launch(grid=3, block=(32, 1))(out, x, 2, 70)
    assert torch.equal(out, x * 2)


@pytest.mark.parametrize(
    "dtype, name, header", [(torch.float16, "__half", "cuda_fp16.h"), (torch.bfloat16, "__nv_bfloat16", "cuda_bf16.h")]
)
def test_half_precision_tensors_go_where_half_precision_pointers_are(cu, dtype, name, header):
    x = torch.randn(70).to(dtype)
    out = torch.zeros_like(x)
    file = cu(f"#include <{header}>\n{SCALE}", f"scale<{name}>")
    file[f"scale<{name}>"].launch(3, 32)(out, x, 2, 70)
    assert torch.equal(out, (x.float() * 2).to(dtype))
    with pytest.raises(TypeError, match=f"x: dtype should be {dtype}, is torch.float32"):
        file[f"scale<{name}>"].launch(3, 32)(out, x.float(), 2, 70)


def test_views_of_one_storage_stay_views_of_one(cu):
    packed = torch.arange(64.0)
    cu(SCALE, "scale_all").scale_all(packed[32:], packed[:32], 3.0, 32)
    assert torch.equal(packed[32:], torch.arange(32.0) * 3) and torch.equal(packed[:32], torch.arange(32.0))


def test_a_large_storage_is_not_copied(cu):
    """Of which a call may touch little, and which may be more than there is memory. Here all of 2^38 bytes."""
    add = cu("__global__ void add(float* x, float* y, size_t n) { y[0] += x[n]; x[n] = 5; }", "add")["add"].launch(1, 1)
    x = untouched(2**36, torch.float32, torch.device("cpu"))
    y = torch.ones(1)
    x[2**35] = 3.0
    add(x, y, 2**35)
    assert (y.item(), x[2**35].item()) == (4.0, 5.0)
    view = x[2**35 :]
    add(view, y, 0)
    assert (y.item(), x[2**35].item()) == (9.0, 5.0)


def test_headers_of_the_author_are_found_and_rewritten(cu, tmp_path):
    (tmp_path / "tile.cuh").write_text(
        "template <int N> __device__ float first(float x) { __shared__ float s[N]; s[0] = x; return s[0]; }\n"
    )
    file = cu('#include "tile.cuh"\n__global__ void one(float* out) { out[0] = first<4>(7); }\n', "one")
    out = torch.zeros(1)
    file.one.launch(1, 1)(out)
    assert out.item() == 7


def test_defines_reach_the_compiler(cu):
    out = torch.zeros(1, dtype=torch.int32)
    cu("__global__ void k(int* out) { out[0] = BLOCK; }", "k", defines={"BLOCK": 24}).k.launch(1, 1)(out)
    assert out.item() == 24


def test_launches_in_every_form(cu):
    text = """
    namespace deep { template <int A, bool B> __global__ void k(int* out, int x) { out[threadIdx.x] = A + B + x; } }
    template <class T> __global__ void deduced(T* out, T x) { extern __shared__ T s[]; s[0] = x; out[1] = s[0]; }
    #define LAUNCH(kernel, ...) kernel<<<dim3(1), dim3(1, 1, 1)>>>(__VA_ARGS__)
    void host(int* out) {
        cudaStream_t stream = 0;
        deep::k<(3 > 2), sizeof(int) == 4><<<1, 1, 0, stream>>>(out, 5);
        deduced<<<1, 1, sizeof(int)>>>(out, 11);
        auto pointer = &deep::k<20, false>;
        pointer<<<dim3{1, 1}, 1>>>(out + 2, 0);
        auto last = &deep::k<30, false>;
        LAUNCH(last, out + 3, 0);
    }
    """
    out = torch.zeros(4, dtype=torch.int32)
    cu(text, "host").host(out)
    assert out.tolist() == [7, 11, 20, 30]


def test_constants_and_device_variables(cu):
    text = """
    __constant__ float weights[2];
    __device__ int counter;
    __global__ void k(float* out) { out[threadIdx.x] = weights[threadIdx.x]; atomicAdd(&counter, 1); }
    int host(float* out) {
        float w[2] = {1.5f, 2.5f};
        cudaMemcpyToSymbol(weights, w, sizeof w);
        k<<<1, 2>>>(out);
        int seen = 0;
        cudaMemcpyFromSymbol(&seen, counter, sizeof seen);
        return seen;
    }
    """
    out = torch.zeros(2)
    assert cu(text, "host").host(out) == 2 and out.tolist() == [1.5, 2.5]


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((torch.zeros(4), torch.zeros(4), 1.0), r"scale_all of kernel.cu takes 4 arguments \(out, x, by, n\), got 3"),
        ((torch.zeros(4), torch.zeros(4).half(), 1.0, 4), "x: dtype should be torch.float32, is torch.float16"),
        ((torch.zeros(4), 3, 1.0, 4), "x: should be a CPU tensor or None, is 3"),
        ((torch.zeros(4), torch.zeros(4, device="meta"), 1.0, 4), "x: should be a CPU tensor, is on meta"),
        ((torch.zeros(4), torch.zeros(4), 1.0, 4.5), "n: should be an integer, is 4.5"),
        ((torch.zeros(4), torch.zeros(4), torch.ones(1), 4), "by: should be a number, is Tensor"),
        ((torch.zeros(4), torch.zeros(4), "2", 4), "by: should be a number, is str"),
    ],
)
def test_arguments_that_do_not_fit(cu, arguments, message):
    with pytest.raises(TypeError, match=message):
        cu(SCALE, "scale_all").scale_all(*arguments)


def test_names_that_are_not_there(cu, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.cu"):
        load(tmp_path / "none.cu", "k")
    with pytest.raises(ValueError, match="name the functions to be called"):
        cu(SCALE)
    with pytest.raises(
        CompileError, match=r"'scael_all' should be a C\+\+ expression that names one function of kernel.cu"
    ):
        cu(SCALE, "scael_all")
    file = cu(SCALE, "scale_all")
    with pytest.raises(AttributeError, match="'scale' was not named in load\\(\\); named were scale_all"):
        file.scale  # noqa: B018
    with pytest.raises(KeyError, match="'scale<float>' was not named in load"):
        file["scale<float>"]


@pytest.mark.parametrize("grid, block", [((1, 2, 3, 4), 1), (1, -1), (1.5, 1), (1, "32")])
def test_sizes_of_a_launch_that_make_no_sense(cu, grid, block):
    with pytest.raises((ValueError, TypeError), match="should be one to three sizes"):
        cu(SCALE, "scale<float>")["scale<float>"].launch(grid, block)


REFUSALS = [
    ('__global__ void k(int* x) {\n  asm volatile("mov.u32 %0, %%laneid;" : "=r"(x[0]));\n}', "inline PTX", 2),
    ("#include <cooperative_groups.h>\n__global__ void k(int* x) {}", "cooperative groups", 1),
    ("\n#include <mma.h>\n__global__ void k(int* x) {}", "", 2),
    ("#include <cuda/barrier>\n__global__ void k(int* x) {}", "", 1),
    ("#include <cuda/pipeline>\n__global__ void k(int* x) {}", "", 1),
    (
        "#include <torch/extension.h>\n__global__ void k(int* x) {}",
        "keep kernels and bindings in files of their own",
        1,
    ),
    ("__global__ void k(unsigned* x) {\n\n  x[0] = __activemask(); }", "__activemask", 3),
    ("__global__ void k(int* x) {\n extern __shared__ int s[4]; x[0] = s[0]; }", "without a size", 2),
]


@pytest.mark.parametrize("text, reason, line", REFUSALS, ids=lambda value: str(value)[:24])
def test_what_is_not_covered_is_refused_with_reason_and_line(cu, text, reason, line):
    with pytest.raises(Refused) as refused:
        cu(text, "k")
    assert (refused.value.line, Path(refused.value.file).name) == (line, "kernel.cu")
    assert reason in refused.value.reason and refused.value.reason
    assert str(refused.value).startswith(f"{refused.value.file}:{line}: not covered on the CPU: ")


def test_what_the_preprocessor_leaves_out_is_not_refused(cu):
    file = cu('__global__ void k(int* x) {\n#if __CUDA_ARCH__ >= 800\n  asm("x");\n#endif\n x[0] = 1; }', "k")
    out = torch.zeros(1, dtype=torch.int32)
    file.k.launch(1, 1)(out)
    assert out.item() == 1


def test_a_compile_error_speaks_of_the_authors_line(cu):
    with pytest.raises(CompileError, match=r"kernel\.cu:3:\d+: error: .*unknown_thing.*") as error:
        cu("__global__ void k(int* x) {\n  __shared__ int s[2];\n  x[0] = unknown_thing(s[0]);\n}", "k")
    assert "unknown_thing: neither kernel.cu nor the shim" in str(error.value)
    with pytest.raises(CompileError, match=r"kernel\.cu:2:\d+: error: invalid conversion"):
        cu("__global__ void k(int* x) {}\nvoid host(int* x) { k<<<1, 1>>>(3.5f, x); }".replace("3.5f, x", "5"), "host")


def test_a_name_that_is_unknown_for_a_line_that_did_not_compile_is_not_explained(cu):
    with pytest.raises(CompileError, match="error: expected") as error:
        cu("__global__ void k(int* x) {\n  int = 3;\n  x[0] = a;\n}", "k")
    assert "'a' was not declared" in str(error.value) and "neither" not in str(error.value)


@pytest.fixture
def forgotten():
    """What CXX named before the test, and in it."""
    build.compiler.cache_clear()
    yield
    build.compiler.cache_clear()


@pytest.mark.parametrize(
    "named, wrong",
    [
        ("nosuch", "is no program"),
        ("ccache g++", "is no program"),
        ("false", r"does not say its --version \(exit status 1\)"),
        ("gcc", "is no g\\+\\+, but 'gcc "),
        ("true", "is no g\\+\\+, but 'true "),
    ],
)
def test_a_compiler_that_is_none_is_named(monkeypatch, forgotten, named, wrong):
    monkeypatch.setenv("CXX", named)
    with pytest.raises(
        NoCompiler, match=rf"CXX='{re.escape(named)}' {wrong}.*: CXX should be the path of one g\+\+, or not"
    ):
        build.compiler()
    assert f"CXX={named!r}" in build.no_compiler()


def test_a_gxx_of_any_name_is_taken(monkeypatch, forgotten, tmp_path):
    (tmp_path / "mine").symlink_to(shutil.which("g++"))
    monkeypatch.setenv("CXX", str(tmp_path / "mine"))
    assert build.compiler()[0] == str(tmp_path / "mine")


def test_without_a_compiler_it_says_what_to_install(monkeypatch, forgotten, tmp_path):
    (tmp_path / "k.cu").write_text(SCALE)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompiler, match=r"no g\+\+ found: install it"):
        load(tmp_path / "k.cu", "scale_all")


# --- plain mode: what ends a launch on a GPU is an exception ----------------------------------------------------------


@pytest.mark.parametrize(
    "body, message",
    [
        ("if (threadIdx.x < 8) __syncwarp(); else __syncthreads();", "deadlock: "),
        ("((int*)nullptr)[threadIdx.x] = 1;", "outside: address 0, where no tensor is"),
        ("int z = x[0]; x[1] = 5 / z;", "trap: division of an integer by zero"),
        ("__trap();", r"trap: __trap\(\)"),
        ("assert(threadIdx.x < 5);", r"trap: assert\(threadIdx.x < 5\)"),
        ("x[70] = 3;", "writes outside of its tensors: 24 bytes past the end of x"),
        ("x[-2] = 3;", "writes outside of its tensors: 5 bytes before the start of x"),
        ("while (atomicAdd(x, 0) == 0) {}", "deadlock: "),
        ("volatile char big[1 << 20]; big[threadIdx.x] = 1; x[0] = big[5];", "KiB of local memory in one thread"),
    ],
)
def test_what_a_gpu_would_stop_at_raises(cu, body, message):
    x = torch.zeros(64, dtype=torch.int32)
    file = cu(f"#include <assert.h>\n__global__ void k(int* x) {{\n  {body}\n}}", "k")
    with pytest.raises(CudaError, match=message):
        file.k.launch(1, 32)(x)
    with pytest.raises(CudaError, match=message):  # and the next launch starts afresh
        file.k.launch(1, 32)(torch.zeros(64, dtype=torch.int32))


@pytest.mark.parametrize(
    "block, shared, message",
    [(2000, 0, "2000 threads a block"), (32, 50000, "50000 bytes of dynamic shared memory, at most 49152")],
)
def test_a_launch_that_fails_raises_unless_the_host_asks(cu, block, shared, message):
    text = f"""
    __global__ void k(int* x) {{ x[0] = 1; }}
    void silent(int* x) {{ k<<<1, {block}, {shared}>>>(x); }}
    int asking(int* x) {{ k<<<1, {block}, {shared}>>>(x); return cudaGetLastError(); }}
    int opted(int* x) {{
        cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, {shared});
        k<<<1, 32, {shared}>>>(x);
        return cudaGetLastError();
    }}
    """
    x = torch.zeros(1, dtype=torch.int32)
    file = cu(text, "silent", "asking", "opted")
    with pytest.raises(CudaError, match=f"launch: k at kernel.cu:3, .*{message}"):
        file.silent(x)
    assert file.asking(x) != 0 and x.item() == 0
    assert file.opted(x) == 0 and x.item() == 1


# --- compiled once ----------------------------------------------------------------------------------------------------


def test_a_file_is_compiled_once_and_again_when_it_or_a_header_changes(own_cache, tmp_path, monkeypatch):
    (tmp_path / "h.cuh").write_text("#define VALUE 1\n")
    path = tmp_path / "k.cu"
    path.write_text('#include "h.cuh"\n__global__ void k(int* x) { x[0] = VALUE; }\n')
    compiled = []
    compile_ = build._compile
    monkeypatch.setattr(build, "_compile", lambda *a: (compiled.append(1), compile_(*a)))

    def value():
        out = torch.zeros(1, dtype=torch.int32)
        load(path, "k").k.launch(1, 1)(out)
        return out.item(), len(compiled)

    assert value() == (1, 1) and value() == (1, 1)
    (tmp_path / "h.cuh").write_text("#define VALUE 2\n")
    assert value() == (2, 2)
    path.write_text(path.read_text().replace("= VALUE", "= 10 * VALUE"))
    assert value() == (20, 3)
    (tmp_path / "h.cuh").write_text("#define VALUE 1\n")
    assert value() == (10, 4)


def test_a_large_file_says_that_it_is_being_compiled(own_cache, tmp_path, capsys):
    """Once: from the cache it comes in silence, and so does a small one."""
    path = tmp_path / "k.cu"
    for comment, words in (("", ""), ("/" * build.LARGE, "compiling k.cu for the CPU, once: about 20 s\n")):
        path.write_text(f"{SCALE}\n{comment}\n")
        load(path, "scale_all")
        assert capsys.readouterr() == ("", words)
        load(path, "scale_all")
        assert capsys.readouterr() == ("", "")


def _load_and_count(path: str, queue) -> None:
    built = []
    compile_ = build._compile
    build._compile = lambda *a: (built.append(1), compile_(*a))
    load(path, "scale_all")
    queue.put(len(built))


def test_processes_that_want_the_same_file_compile_it_once(own_cache, tmp_path):
    path = tmp_path / "k.cu"
    path.write_text(SCALE)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_load_and_count, args=(str(path), queue)) for _ in range(3)]
    for worker in workers:
        worker.start()
    assert sorted(queue.get(timeout=120) for _ in workers) == [0, 0, 1]
    for worker in workers:
        worker.join()


def test_a_cache_that_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(CudaError, match=r"file/cache, for compiled files, cannot be written to .*FLASH_ATTEST_CACHE"):
        build.cache_folder()
    monkeypatch.delenv("FLASH_ATTEST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert build.cache_folder() == Path(tempfile.gettempdir()) / f"flash-attest-{os.getuid()}"


def test_ctrl_c_ends_a_launch(tmp_path):
    (tmp_path / "k.cu").write_text("__global__ void k(volatile int* x) { while (x[0] == 0) {} }\n")
    script = f"""
import torch
from races.cuda import load
k = load({str(tmp_path / "k.cu")!r}, "k").k
print("ready", flush=True)
try:
    k.launch(1, 1)(torch.zeros(1, dtype=torch.int32))
except KeyboardInterrupt:
    print("interrupted")
"""
    running = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": "."},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored, where a shell runs this in its background
    )  # fmt: skip
    assert running.stdout.readline() == "ready\n"
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=30)[0] == "interrupted\n"
