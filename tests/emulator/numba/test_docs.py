"""docs/use/tracing-numba.md is correct: its examples print the quoted text, both here and in
Numba's simulator.
"""

import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.emulator.numba.faults import FAULTY, Fault
from tests.emulator.numba.test_simulator import arguments_of
from tests.places import ROOT
from tests.runs import python

TEXT = (ROOT / "docs" / "use" / "tracing-numba.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, flags=re.M | re.S)  # (language, content)
RIGHT, RACY, PRINTED, FIX = (body for _, body in BLOCKS[:4])


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> list[str]:
    """Return the output of the correct, the racy, and the fixed example.

    They run in one process, because importing Numba takes seconds.
    """
    before, after = ("".join(line[1:] for line in FIX.splitlines(True) if line[0] in signs) for signs in (" -", " +"))
    assert RACY.count(before) == 1
    files = []
    for n, text in enumerate((RIGHT, RACY, RACY.replace(before, after))):
        files.append(tmp_path_factory.mktemp(f"example{n}") / re.match(r"# (\w+\.py)\n", text)[1])
        files[n].write_text(text)
    program = f"import runpy\nfor file in {list(map(str, files))}:\n    runpy.run_path(file)\n    print('=====')"
    done = python("-c", program)
    assert done.stderr == ""
    return done.stdout.split("=====\n")


def test_the_right_example_has_no_finding(printed):
    assert printed[0].strip() == re.search(r"this prints `([^`]*)`", TEXT)[1]


def test_the_racy_example_prints_what_the_text_says(printed):
    assert printed[1] == PRINTED


def test_the_fixed_example_has_no_race_and_is_right(printed):
    assert printed[2] == "wrong by 0.0\n"


SIMULATED = {  # first cell of a row of the table -> the kernel of the battery
    "adds to a bin without `atomic.add`": "atomics: histogram",
    "two blocks write the same rows": "places: rows_of_blocks, blocks that overlap",
    "half of the block skips a `syncthreads()`": "barriers: reverse, a barrier for half of the block",
    "shifts a row in place without a barrier": "barriers: shift",
    "lacks a `syncwarp()`": "warps: warp_tile",
    "reads beyond the end of an array": "places: half_dot, one element more",
    "reads shared memory before anybody wrote it": "places: reverse_rows, what returned threads did not store",
}
RACES = [name for name in SIMULATED if not name.startswith("reads ")]
# Outcomes of a race depend on the order in which Python's threads continue. The table has the usual
# outcome on an idle machine.
EITHER = {"right result", "a result that no GPU gives, and no line"}
TIMES = 5
PROGRAM = """if True:
    import copy, pickle, sys

    def outcome(kernel, grid, block, shared, arguments):
        try:
            kernel[grid, block, 0, shared](*arguments)
        except Exception as error:
            return type(error).__name__
        return arguments[-1]

    outcomes = []
    for n, (text, kernel, *launch, arguments) in enumerate(pickle.load(sys.stdin.buffer)):
        space = {"__name__": f"kernels_{n}"}
        exec(compile(text, f"kernels_{n}.py", "exec"), space)
        outcomes.append([outcome(space[kernel], *launch, copy.deepcopy(arguments)) for _ in range(TIMES)])
    sys.stdout.buffer.write(pickle.dumps(outcomes))
"""


LACKING = ("cuda.shfl_sync(-1, 1, 0)", "cuda.ballot_sync(-1, 1)", "cuda.match_any_sync(-1, 1)", "cuda.syncwarp(1)")


@pytest.mark.thorough  # the simulator takes seconds, and changes only with Numba
def test_the_simulator_does_what_the_table_says():
    _, below = TEXT.split("| in the simulator | here |\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in below.splitlines()[1:8]]
    assert [row[0] for row in rows] == list(SIMULATED)
    faults = [FAULTY[name] for name in SIMULATED.values()]
    asked = [
        (f.text(), f.subject.kernel, f.subject.grid, f.subject.block, f.subject.shared, arguments_of(f.subject.kernel))
        for f in faults
    ]
    head = "from numba import cuda\n@cuda.jit\ndef kernel(x):\n    "
    asked += [(f"{head}{call}\n", "kernel", 1, 1, 0, [torch.zeros(1).numpy()]) for call in LACKING]
    tile = "tile = cuda.shared.array(1, 'float32')\n    tile[0] = 1\n    x[0] = tile[0]\n"
    asked.append((f"{head}{tile}", "kernel", 1, 1, 0, [torch.zeros(1)]))
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("TIMES", str(TIMES))],
        input=pickle.dumps(asked),
        env=environment,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    outcomes = pickle.loads(done.stdout)
    assert outcomes[len(faults) :] == [[error] * TIMES for error in ["AttributeError"] * len(LACKING) + ["TypeError"]]
    for (name, there, here), fault, results in zip(rows, faults, outcomes[: len(faults)], strict=True):
        assert here.split(",")[0] == fault.kinds[0]
        seen = {outcome(fault, result) for result in results}
        assert there in EITHER and seen <= EITHER if name in RACES else seen == {there}


def outcome(fault: Fault, result: str | np.ndarray) -> str:
    """Return the outcome as the table words it.

    result: the name of an exception, or the output.
    """
    if isinstance(result, str):
        return result
    want = fault.subject.want(*fault.subject.inputs())
    right = torch.allclose(torch.from_numpy(result), want, rtol=fault.subject.tolerance)
    return "right result" if right else "a result that no GPU gives, and no line"
