"""Numba's own simulator, in a separate process, agrees with the compiled kernels. It is a third
opinion on the values.

It runs kernels as Python, so it uses neither the compiler nor the engine. It has no shuffles and no
votes of warps.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.emulator.numba.subjects import RIGHT

HERE = Path(__file__).parent
# These have shared and constant arrays, barriers that count, dynamic tiles, atomics, local arrays.
SAMPLE = ("reverse", "smooth", "counted", "dynamic_matmul", "histogram", "medians")
THOROUGH = (
    *("transpose", "stencil", "life", "scaled", "box"),  # two and three dimensions
    *("block_sum", "softmax", "scan", "bitonic"),  # barriers in loops
    *("matmul", "two_types"),  # tiles
    *("extremes", "column_sums", "product"),  # atomics: max, min, compare and swap
    *("modes", "collatz", "fourier"),  # loops of different lengths in each thread, complex numbers
)
PROGRAM = """if True:
    import importlib.util, pickle, sys

    def kernels(file):
        spec = importlib.util.spec_from_file_location("kernels", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return vars(module)

    known = {name: kernel for file in sys.argv[1:] for name, kernel in kernels(file).items()}
    outputs = {}
    for name, grid, block, shared, arguments in pickle.load(sys.stdin.buffer):
        known[name][grid, block, 0, shared](*arguments)
        outputs[name] = arguments[-1]
    sys.stdout.buffer.write(pickle.dumps(outputs))
"""


def arguments_of(name: str) -> list:
    """Return the arguments of a launch, in NumPy; the output is the last one."""
    return [x.numpy() if isinstance(x, torch.Tensor) else x for x in RIGHT[name].arguments()]


@pytest.fixture(scope="module")
def simulated(request) -> dict[str, np.ndarray]:
    """Return the outputs of the simulator, from one process, because importing Numba takes longer
    than most kernels.
    """
    names = SAMPLE + THOROUGH * request.config.getoption("--thorough")
    asked = [(name, RIGHT[name].grid, RIGHT[name].block, RIGHT[name].shared, arguments_of(name)) for name in names]
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *(HERE / f"{name}.py" for name in ("kernels", "warps_and_atomics", "more_kernels"))],
        input=pickle.dumps(asked), capture_output=True, env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr.decode()
    return pickle.loads(process.stdout)


@pytest.mark.parametrize("name", [*SAMPLE, *(pytest.param(name, marks=pytest.mark.thorough) for name in THOROUGH)])
def test_the_simulator_has_the_same_values(name: str, simulated):
    subject, arguments = RIGHT[name], arguments_of(name)
    before = arguments[-1].copy()
    getattr(subject.module, name)[subject.grid, subject.block, 0, subject.shared](*arguments)
    assert not np.array_equal(arguments[-1], before)
    np.testing.assert_allclose(arguments[-1], simulated[name], rtol=subject.tolerance, atol=subject.tolerance)
