"""The names and types of the shim are CUDA's: g++ compiles a file of them with the shim, and nvcc
without it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.places import ROOT

INCLUDE = ROOT / "emulator" / "cuda" / "include"
NAMES = Path(__file__).parent / "sources" / "names.cu"
GXX = shutil.which("g++")


def test_names_are_known_to_the_shim(tmp_path):
    command = [GXX, "-std=c++17", "-x", "c++", "-O1", "-w", "-isystem", INCLUDE, "-include", "cuda_shim.h"]
    # The file launches nothing, so kernels can be functions and shared memory can be static.
    subprocess.run(
        [*command, "-D__global__=", "-D__device__=", "-D__shared__=static", "-c", NAMES, "-o", tmp_path / "names.o"],
        check=True,
    )


def test_names_are_those_of_cuda(tmp_path):
    """nvcc compiles the same file, so the test fails if a name or a type exists only in the
    shim.
    """
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc here; the names were CUDA's when it was last run with one")
    subprocess.run(["nvcc", "-c", "-arch=sm_80", "-o", tmp_path / "names.o", NAMES], check=True)
