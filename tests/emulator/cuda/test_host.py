"""The CUDA runtime API on a CPU: memory, symbols, errors and whether they were checked, attributes,
refusals.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.places import ROOT

INCLUDE = ROOT / "emulator" / "cuda" / "include"
API = [ROOT / "emulator" / "cuda" / "host" / name for name in ("host_api.cpp", "host_device.cpp")]
HOST = Path(__file__).parent / "sources" / "host.cpp"
GXX = shutil.which("g++")


@pytest.fixture(scope="module")
def host(tmp_path_factory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("host") / "host.so"
    # -Bsymbolic makes the library use its own functions instead of those of a runtime that another
    # test has loaded.
    command = [GXX, "-std=c++17", "-O1", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-isystem", INCLUDE, "-I", ROOT]
    subprocess.run([*command, HOST, *API, "-o", library], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("part", ["memory", "symbols", "errors", "attributes", "device", "streams_and_events"])
def test_runtime_api(host, part):
    line = getattr(host, part)()
    assert line == 0, f"{HOST}:{line}: {HOST.read_text().splitlines()[line - 1].strip()}"


def compiled(source: str, tmp_path: Path, *flags: str) -> str:
    """Return g++'s messages about `source`."""
    file = tmp_path / "some.cpp"
    file.write_text(source)
    command = [GXX, "-std=c++17", "-O1", "-w", "-isystem", INCLUDE, *flags]
    return subprocess.run([*command, "-c", file, "-o", tmp_path / "some.o"], capture_output=True, text=True).stderr


REFUSED = [
    *("cooperative_groups.h", "cooperative_groups/reduce.h", "mma.h", "cuda_awbarrier_primitives.h"),
    *("cuda/barrier", "cuda/pipeline", "cuda/ptx", "cub/cub.cuh", "cute/tensor.hpp", "cutlass/cutlass.h"),
]


@pytest.mark.parametrize("header", REFUSED)
def test_headers_are_refused_at_the_line_that_includes_them(header, tmp_path):
    said = compiled(f"\n#include <{header}>\n", tmp_path)
    assert "CUDA_SHIM_REFUSED: " in said
    assert "some.cpp:2" in said


def test_launches_by_function_are_refused_at_their_line(tmp_path):
    launch = "cudaLaunchKernel(kernel, dim3(1), dim3(1), nullptr, 0, 0);"
    said = compiled(f'#include "shim/host_api.h"\nvoid f(void* kernel) {{\n    {launch}\n}}\n', tmp_path)
    assert "some.cpp:3" in said
    assert "CUDA_SHIM_REFUSED: cudaLaunchKernel: launch with kernel<<<" in said


def test_assert_can_be_included_again(tmp_path):
    source = """
        #include <cassert>
        void strict(int x) { assert(x > 3 && "a, b"); }
        #define NDEBUG
        #include <assert.h>
        void loose(int) { assert(this is not compiled); }
        #undef NDEBUG
        #include <cassert>
        void again(int x) { assert(x); }
    """
    assert compiled(source, tmp_path) == ""
