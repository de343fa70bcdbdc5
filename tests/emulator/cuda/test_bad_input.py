"""Errors in a .cu, in its arguments or in the compiler are reported early, and say what to
change.
"""

import re
import shutil
from pathlib import Path

import pytest
import torch

from flash_attest.emulator import compiler
from flash_attest.emulator.cuda import CompileError, NoCompiler, Refused, load, nvcc
from tests.emulator.cuda.sources.scale import SCALE


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
    with pytest.raises(AttributeError, match="'scale' was not named in load\\(\\), which named scale_all"):
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
    ("#include <mma.h>\n__global__ void k(int* x) {}", "", 1),
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


@pytest.mark.parametrize("there, through, hinted", [("nvcc", None, True), ("nvcc", "g++", False), (None, None, False)])
def test_an_error_of_gpp_names_nvcc_where_it_is_installed_and_was_not_ruled_out(
    cu, monkeypatch, there, through, hinted
):
    monkeypatch.setattr(nvcc, "nvcc", lambda: there)
    with pytest.raises(CompileError, match="does not compile for the CPU") as error:
        cu("__global__ void k(int* x) { x[0] = no_such_word; }", "k", through=through)
    assert ('load(..., through="nvcc")' in str(error.value)) is hinted


@pytest.mark.parametrize("text, reason, line", REFUSALS, ids=lambda value: str(value)[:24])
def test_what_is_not_covered_is_refused_with_reason_and_line(cu, text, reason, line):
    with pytest.raises(Refused) as refused:
        cu(text, "k", through="g++")
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


def test_a_name_that_is_unknown_because_its_line_does_not_compile_is_not_explained(cu):
    with pytest.raises(CompileError, match="error: expected") as error:
        cu("__global__ void k(int* x) {\n  int = 3;\n  x[0] = a;\n}", "k")
    assert "'a' was not declared" in str(error.value) and "neither" not in str(error.value)


# ---- the compiler --------------------------------------------------------------------------------


@pytest.fixture
def forgotten():
    """Forget the compiler, before and after the test."""
    compiler.compiler.cache_clear()
    yield
    compiler.compiler.cache_clear()


@pytest.mark.parametrize(
    "named, wrong",
    [
        ("nosuch", "is not a program"),
        ("ccache g++", "is not a program"),
        ("false", r"does not print its --version \(exit status 1\)"),
        ("gcc", "is not g\\+\\+, but 'gcc "),
        ("true", "is not g\\+\\+, but 'true "),
    ],
)
def test_a_CXX_that_is_not_gxx_is_named(monkeypatch, forgotten, named, wrong):
    monkeypatch.setenv("CXX", named)
    with pytest.raises(
        NoCompiler, match=rf"CXX='{re.escape(named)}' {wrong}.*: CXX should be the path of one g\+\+, or not"
    ):
        compiler.compiler()
    assert f"CXX={named!r}" in compiler.no_compiler()


def test_a_gxx_of_any_name_is_taken(monkeypatch, forgotten, tmp_path):
    (tmp_path / "mine").symlink_to(shutil.which("g++"))
    monkeypatch.setenv("CXX", str(tmp_path / "mine"))
    assert compiler.compiler()[0] == str(tmp_path / "mine")


def test_without_a_compiler_it_says_what_to_install(monkeypatch, forgotten, tmp_path):
    (tmp_path / "k.cu").write_text(SCALE)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompiler, match=r"no g\+\+ found: install it"):
        load(tmp_path / "k.cu", "scale_all")
