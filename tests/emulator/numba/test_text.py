"""The PTX of a kernel includes the functions that it links, and shared arrays have their names in
Python.
"""

from __future__ import annotations

import re

import pytest
import torch
from numba import cuda, float32, int32

from flash_attest.emulator.errors import CompileError, NotCovered
from flash_attest.emulator.numba.text import linked, text_of, with_atomic_reads, with_names
from flash_attest.races.tracing import trace

CUDA = """
#include <cuda_fp16.h>
extern "C" __device__ int larger(float* result, float a, float b) {
    *result = a > b ? a : b;
    return 0;
}
"""
PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.file 1 "smaller.ptx"
.visible .func (.param .b32 status) smaller(.param .b64 result, .param .b32 a, .param .b32 b)
{
    .reg .f32 %f<4>; .reg .b64 %rd1; .reg .b32 %r1;
    .loc 1 3 0
    ld.param.u64 %rd1, [result]; ld.param.f32 %f1, [a]; ld.param.f32 %f2, [b];
    min.f32 %f3, %f1, %f2;
    st.f32 [%rd1], %f3;
    mov.u32 %r1, 0;
    st.param.b32 [status+0], %r1;
    ret;
}
"""
SIGNATURE = "float32(float32, float32)"
larger = cuda.declare_device("larger", SIGNATURE, link=[cuda.CUSource(CUDA, name="larger.cu")])
smaller = cuda.declare_device("smaller", SIGNATURE, link=[cuda.PTXSource(PTX, name="smaller.ptx")])


@cuda.jit
def halves(x, out):
    i = cuda.grid(1)
    a, b = x[i], x[(i + 1) % x.size]
    out[0, i] = a + b
    out[1, i] = a * b
    out[2, i] = a / b
    out[3, i] = cuda.fp16.hfma(a, b, a)
    out[4, i] = cuda.fp16.hsqrt(abs(a))
    out[5, i] = -a if a < b else cuda.fp16.hmax(a, b)


def test_float16_is_linked():
    """Numba's arithmetic of float16 is CUDA C++, which NVRTC compiles."""
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)).half()
    out = torch.zeros(6, 64, dtype=torch.float16)
    halves[2, 32](x, out)
    y = x.roll(-1)
    fused = (x.double() * y.double() + x.double()).half()
    want = [x + y, x * y, x / y, fused, x.abs().sqrt(), torch.where(x < y, -x, torch.maximum(x, y))]
    assert torch.equal(out, torch.stack(want))


@cuda.jit
def both(x, y, out):
    i = cuda.threadIdx.x
    out[0, i] = larger(x[i], y[i])
    out[1, i] = smaller(x[i], y[i])


def test_an_authors_cuda_source_and_ptx_are_linked():
    x, y, out = torch.arange(32.0), torch.arange(32.0).flip(0), torch.zeros(2, 32)
    both[1, 32](x, y, out)
    assert torch.equal(out, torch.stack([torch.maximum(x, y), torch.minimum(x, y)]))


def test_each_text_has_files_of_its_own():
    """The lines of a linked text are not confused with lines of the kernel's file."""
    both[1, 32](torch.zeros(32), torch.zeros(32), torch.zeros(2, 32))
    ptx = text_of(both.overloads[both.signatures[0]].library)
    files = dict(re.findall(r'\.file\s+(\d+)\s+"([^"]+)"', ptx))
    number = next(number for number, file in files.items() if file == "smaller.ptx")
    assert files["1"] == __file__ and number != "1" and f".loc {number} 3 0" in ptx


def test_a_source_that_does_not_compile():
    with pytest.raises(CompileError, match=r"wrong\.cu.*error"):
        linked(cuda.CUSource("int f( {", name="wrong.cu"))


def test_machine_code_is_not_covered():
    with pytest.raises(NotCovered, match=r"the kernel links fast\.cubin, which is neither CUDA C\+\+ nor PTX"):
        linked("/somewhere/fast.cubin")


@cuda.jit(device=True, lineinfo=True)
def through_shared(t, v):
    tile = cuda.shared.array(64, float32)
    tile[t] = v
    return tile[63 - t]


@cuda.jit
def four_arrays(x, out):
    t = cuda.threadIdx.x
    tile = (
        cuda.shared
        .array(64, int32)
    )  # fmt: skip
    first, second = cuda.shared.array(64, float32), 5
    dynamic = cuda.shared.array(0, float32)
    tile[t] = second
    first[t] = tile[63 - t]
    dynamic[t] = first[63 - t]
    out[t] = dynamic[63 - t] + through_shared(t, x[t])


def test_shared_arrays_have_their_names_in_python():
    x = torch.arange(64.0)
    findings = trace(lambda: four_arrays[1, 64, 0, 256](x, torch.zeros(64)))
    names = {finding.tensor for finding in findings if finding.kind.value == "race"}
    assert names == {"tile", "tile_2", "shared_array", "dynamic shared memory"}
    kernel = four_arrays.overloads[four_arrays.signatures[0]]
    assert "_cudapy_smem" in kernel.library.get_asm_str() and "_cudapy_smem" not in text_of(kernel.library)


def test_arrays_of_which_nothing_is_known_keep_their_names():
    assert with_names("mov.u64 %rd1, _cudapy_smem_7;", ["!0 = !{}"]) == "mov.u64 %rd1, _cudapy_smem_7;"


@cuda.jit
def largest(x, out):
    i = cuda.grid(1)
    cuda.atomic.max(out, 0, x[i])
    cuda.atomic.sub(out, 1, x[i])


def test_the_loops_of_atomic_operations_are_atomic():
    """sm_80 has no atomic maximum of float32. Numba reads the value and swaps it until no other
    thread has changed it in between.
    """
    out = torch.zeros(2)
    assert trace(lambda: largest[2, 32](torch.arange(64.0), out)) == []
    assert out.tolist() == [63.0, -2016.0]
    ptx = largest.overloads[largest.signatures[0]].library.get_asm_str()
    assert ptx.count("ld.volatile") == 2 and "ld.volatile" not in with_atomic_reads(ptx)


@pytest.mark.parametrize("debug", [False, True])
def test_variables_are_described_to_a_debugger_only(debug):
    """Without debug, variables are not described, because NVVM rejects some kernels with "Symbol
    name with unsupported characters".
    """

    @cuda.jit(debug=debug, opt=not debug)
    def kernel(x):
        value = x[0]
        value += 1
        x[1] = value

    kernel[1, 1](torch.zeros(2))
    llvm = kernel.overloads[kernel.signatures[0]].library.get_llvm_str()
    assert "DILocation(" in llvm and ('call void @"llvm.dbg' in llvm) == debug
