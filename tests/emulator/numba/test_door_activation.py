"""The emulator is switched on by the suite or when Numba is imported; precedence, and missing
libraries.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numba_cuda
import pytest
from cuda import pathfinder

from flash_attest.emulator import numba as emulated_numba
from flash_attest.emulator.errors import EmulatorError
from flash_attest.emulator.numba import activate, is_active, lacking
from tests.places import ROOT


def run(program: str, **environment: str) -> list[str]:
    """Run a program in a new process, which has not imported Numba. Returns the words it prints."""
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process.stdout.split()


def test_it_is_active_as_soon_as_numba_s_cuda_part_is_imported():
    """The emulator is also active after a search for Numba without an import. It is not active in a
    process that never imports Numba.
    """
    program = """if True:
        import importlib.util, sys
        from flash_attest.emulator.numba import activate_when_imported, is_active
        activate_when_imported(); activate_when_imported()
        assert importlib.util.find_spec("numba") and "numba" not in sys.modules
        import numba
        before = is_active()
        from numba import cuda
        print(before, is_active(), cuda.is_available(), sum(type(f).__name__ == "_Finder" for f in sys.meta_path))"""
    assert run(program) == ["False", "True", "True", "1"]


def test_numba_s_simulator_comes_first():
    program = """if True:
        from flash_attest.emulator.numba import activate, activate_when_imported, is_active
        activate_when_imported()
        from numba import cuda
        import numpy as np
        @cuda.jit
        def kernel(x):
            x[cuda.grid(1)] = type(cuda.threadIdx).__module__.count("simulator")
        x = np.zeros(2)
        kernel[1, 2](x)
        print(activate(), is_active(), x.sum())"""
    assert run(program, NUMBA_ENABLE_CUDASIM="1") == ["False", "False", "2.0"]
    assert run(
        "from flash_attest.emulator.numba import lacking; print(lacking().split()[0])", NUMBA_ENABLE_CUDASIM="1"
    ) == ["NUMBA_ENABLE_CUDASIM"]


def test_a_second_activation_changes_nothing():
    from flash_attest.emulator.numba.patches import REPLACED

    before = [getattr(owner, name) for owner, name, _ in REPLACED]
    assert activate() and is_active()
    assert [getattr(owner, name) for owner, name, _ in REPLACED] == before


@pytest.mark.parametrize("missing", ("numba", "numba_cuda", "cuda.pathfinder"))
def test_a_missing_package_is_named_with_the_command(missing, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == missing else find(name, *rest))
    name = {"numba": "Numba", "numba_cuda": "numba-cuda", "cuda.pathfinder": "cuda-pathfinder"}[missing]
    assert lacking() == f"{name} is not installed: pip install 'flash-attest[numba]'"
    with pytest.raises(EmulatorError, match=f"{name} is not installed"):
        activate()


@pytest.mark.parametrize("missing", ("nvvm", "nvrtc"))
def test_a_missing_wheel_is_named_with_the_command(missing, monkeypatch):
    def load(name):
        if name == missing:
            raise pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", load)
    assert lacking().startswith(f"NVIDIA's {missing}, which compiles without a GPU too, is not installed: pip install")


@pytest.mark.parametrize("version", ("0.29.1", "0.31.0", "1.30.0"))
def test_another_version_is_refused_as_its_private_names_may_mean_something_else(version, monkeypatch):
    monkeypatch.setattr(numba_cuda, "__version__", version)
    for emulated in (True, False):
        assert lacking(emulated).startswith(f"numba-cuda {version}: should be 0.30, whose private names")
    with pytest.raises(EmulatorError, match=version):
        activate()


def test_what_is_lacking_is_a_warning_where_others_import_numba(monkeypatch):
    monkeypatch.setattr(numba_cuda, "__version__", "0.31.0")
    with pytest.warns(RuntimeWarning, match="kernels in Numba do not run on the CPU: numba-cuda 0.31.0"):
        emulated_numba.activate_when_imported()


def test_importing_the_emulator_imports_neither_numba_nor_torch():
    program = "import flash_attest.emulator.numba, sys; print('numba' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr
