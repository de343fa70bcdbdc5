"""The machine code of kernels: which instructions of the asynchronous proxy they use.

nvcc compiles real kernels here, which needs no GPU.
"""

import mmap
import subprocess
from pathlib import Path

import pytest

from flash_attest.emulator.cuda.nvcc import nvcc
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.asynchronous import Asynchronous
from flash_attest.races.sanitizer import machine_code
from flash_attest.races.sanitizer.machine_code import MachineCode, asynchronous_of, is_variant

FOLDER = Path(__file__).parent / "asynchronous"
needs_tools = pytest.mark.skipif(
    nvcc() is None or machine_code.find() is None, reason="needs nvcc and cuobjdump, to compile for a GPU and to look"
)
HOPPER, BLACKWELL, AMPERE = (9, 0), (10, 0), (8, 0)
USES = {
    "bulk": ["SYNCS", "UBLKCP"],
    "tma": ["SYNCS", "UTMALDG", "UTMAREDG", "UTMASTG"],
    "wgmma": ["HGMMA"],
    "barrier_alone": ["SYNCS"],
    "copies_to_a_barrier": ["ARRIVES", "SYNCS"],
    "ordinary": [],  # a template that is mangled, with cp.async and __syncthreads
}


def compiled(source: str, architecture: str, to: Path, *options: str) -> Path:
    command = [nvcc(), f"-gencode=arch=compute_{architecture},code=sm_{architecture}", *options]
    subprocess.run([*command, FOLDER / source, "-o", to], check=True, capture_output=True)
    return to


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library like a CUDA extension, mapped into this process as if it were loaded."""
    options = ("-shared", "-Xcompiler=-fPIC", "-cudart=none")
    path = compiled("sm_90a.cu", "90a", tmp_path_factory.mktemp("loaded") / "extension.so", *options)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        yield path


@needs_tools
def test_a_loaded_library_shows_what_its_kernels_use(library):
    code = MachineCode(HOPPER)
    assert {kernel: code.asynchronous(kernel) for kernel in USES} == USES


@needs_tools
def test_code_for_another_gpu_is_not_looked_at(library):
    with pytest.raises(LookupError, match="its machine code was not found: the kernels of Triton, Numba and loaded "):
        MachineCode(AMPERE).asynchronous("bulk")


@needs_tools
def test_a_kernel_that_python_keeps_in_memory_is_read(tmp_path):
    """Triton's CompiledKernel and Numba's CUDACodeLibrary have the machine code."""
    code = compiled("sm_100a.cu", "100a", tmp_path / "kernel.cubin", "-cubin").read_bytes()
    triton = type("CompiledKernel", (), {})()
    triton.kernel = code
    assert MachineCode(BLACKWELL).asynchronous("tensor_core") == ["UTCBAR", "UTCHMMA"]
    del triton.kernel
    numba = type("CUDACodeLibrary", (), {})()
    numba._cubin_cache = {BLACKWELL: type("ObjectCode", (), {"code": code})()}
    assert MachineCode(BLACKWELL).asynchronous("tensor_core") == ["UTCBAR", "UTCHMMA"]


@needs_tools
def test_a_kernel_compiled_in_memory_is_read_from_a_named_folder(tmp_path, monkeypatch):
    compiled("sm_100a.cu", "100a", tmp_path / "kernel.cubin", "-cubin")
    monkeypatch.setenv(machine_code.CUBINS, str(tmp_path))
    assert MachineCode(BLACKWELL).asynchronous("tensor_core") == ["UTCBAR", "UTCHMMA"]


@needs_tools
def test_a_limit_is_kept(library):
    with pytest.raises(LookupError, match="cuobjdump did not read its machine code within 0 s"):
        MachineCode(HOPPER, limit=0.0).asynchronous("bulk")


def test_without_cuobjdump_the_reason_names_it(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_code, "TOOLKITS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine_code.importlib.util, "find_spec", lambda name: None)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LookupError, match=r"no cuobjdump found, .* comes with the CUDA toolkit and with Triton"):
        MachineCode(HOPPER).asynchronous("bulk")


@pytest.mark.parametrize(
    "opcode", ["UTMALDG", "UBLKCP", "UBLKRED", "SYNCS", "ARRIVES", "HGMMA", "IGMMA", "UTCQMMA", "UTCCP"]
)
def test_opcodes_of_the_asynchronous_proxy(opcode):
    assert asynchronous_of(["LDS", opcode, "STS"]) == [opcode]


def test_an_arrival_without_waiting_is_named_beside_them():
    assert asynchronous_of(["BAR", "BAR.ARV", "SYNCS"]) == ["BAR.ARV", "SYNCS"] and asynchronous_of(["BAR.ARV"]) == []
    line = "        /*{}*/              {} 0x8, 0x180 ;       /* 0x0208000000007b1d */"
    read = [
        machine_code.INSTRUCTION.search(line.format("09e0", text))[1]
        for text in ("@!P0 BAR.ARV", "BAR.SYNC", "UBAR.ARV")
    ]
    assert read == ["BAR.ARV", "BAR", "UBAR"]


def test_ordinary_opcodes():
    ordinary = ["LDGSTS", "LDGDEPBAR", "DEPBAR", "BAR", "HMMA", "IMMA", "UMOV", "ATOMS", "UCGABAR_ARV", "FENCE"]
    assert asynchronous_of(ordinary) == []


@pytest.mark.parametrize(
    "symbol, kernel, is_one",
    [
        ("_attn_fwd", "_attn_fwd", True),
        ("_attn_fwd_tma", "_attn_fwd", False),
        ("_ZN7cutlass13device_kernelIN5flash11enable_sm90EEEvNT_6ParamsE", "device_kernel", True),
        ("_ZN5flash20other_device_kernelEv", "device_kernel", False),
        ("_Z13fwd_async_tmaPf", "fwd", False),
        ("_Z3fwdPf", "fwd", True),
    ],
)
def test_a_kernel_and_its_variants_are_told_by_their_symbols(symbol, kernel, is_one):
    assert is_variant(symbol, kernel) == is_one


def test_a_kernel_that_no_filter_can_tell_from_another_is_not_excused():
    """compute-sanitizer filters by a part of the name, so "bwd" cannot be watched alone."""
    found = Asynchronous({"bwd_preprocess_tma": ["SYNCS"]})
    kernels = ["bwd", "bwd_preprocess_tma", "convert"]
    assert found.ordinary(kernels) == ["convert"] and found.why is Reason.ASYNCHRONOUS
    hidden = found.hidden(kernels)
    assert hidden.why is Reason.RESOURCES
    assert str(hidden).endswith("bwd may use them: racecheck cannot watch it without bwd_preprocess_tma")
