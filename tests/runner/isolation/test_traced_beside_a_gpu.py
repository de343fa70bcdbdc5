"""With a GPU, a plug-in's Triton or Numba kernels are traced in a process that sees no GPU.

Without isolation the verdict of tracing laws is unknown. No kernel runs on a GPU here:
CUDA_VISIBLE_DEVICES names a missing GPU, and each process believes that it exists.
"""

from __future__ import annotations

import json
import os

import pytest

from flash_attest.runner.judge import SEES_GPU
from tests.places import ROOT
from tests.runs import python

JUDGED = """
import json, os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = "99"
from pathlib import Path
from flash_attest.impls.contract.loading import from_file
from flash_attest.properties import trial
from flash_attest.properties.calling import raised
from flash_attest.properties.machine.gpus import emulate_if_no_gpu
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.properties.law import laws
from flash_attest.properties.judging.plan import Plan
from flash_attest.runner.plugin.process import prepare
from flash_attest.runner.judge import Judge

FILE, REPORT, ISOLATED = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "isolated"
LAW, CHANGES = sys.argv[4], json.loads(sys.argv[5])
build = trial.build


def start(device):
    if device == "cpu":
        return prepare(device, is_worker=True)
    trial.build, raised.device_error = lambda case, device: build(case, "cpu"), lambda device: ""  # only calls need it
    return {}


if __name__ == "__main__":
    emulate_if_no_gpu()  # as conftest.py calls it
    entries = from_file(FILE)
    plan = Plan(device="cuda", examples=2, try_contract=False)
    judge = Judge(plan, entries, REPORT, "main")
    objects = [*laws().values(), *(entry.impl for entry in entries)]
    judging = Isolated(judge, start, objects, 120.0, False) if ISOLATED else judge
    found = {entry.name: judging.law(laws()[LAW], entry.impl, **CHANGES) for entry in entries}
    judging.close()
    print(json.dumps({name: [result.verdict, result.reason, result.message] for name, result in found.items()}))
"""
TRACED, OUT = "test_no_race_is_traced", "test_out_matches_the_definition"


def verdicts(tmp_path, file, how, law=TRACED, **changes):
    (tmp_path / "judged.py").write_text(JUDGED)
    arguments = [ROOT / "tests" / "plugins" / file, tmp_path, how, law, json.dumps(changes)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    run = python(tmp_path / "judged.py", *arguments, PYTHONPATH=path)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


FILES = ("triton_kernels.py", "registered_kernels.py", pytest.param("numba_kernels.py", marks=pytest.mark.thorough))


@pytest.mark.parametrize("file", FILES)
def test_a_plug_in_is_traced_in_a_process_without_the_gpu(file, tmp_path):
    results = verdicts(tmp_path, file, "isolated")
    assert results["right"][0] == "pass", results["right"]
    assert results["racy"][0] == "fail" and results["racy"][1].startswith("race: "), results["racy"]


def test_a_failure_on_the_gpu_is_traced_in_such_a_process(tmp_path):
    """In the judging process, Numba's kernels would interpret CPU addresses as GPU addresses."""
    case = "seqlen_q=41 seqlen_k=41 headdim=16 dtype=float16"
    results = verdicts(tmp_path, "numba_kernels.py", "isolated", law=OUT, case=case)
    for verdict, reason, message in results.values():
        assert verdict == "fail" and reason.startswith("forward raises "), message
        assert message.startswith(f"{reason}\n")
    (_, right, whole), (_, racy, message) = results["right"], results["racy"]
    assert "(race, " not in right and "traced (1 launch): no race, and no access out of bounds" in whole
    assert "(race, numba_kernels.py:" in racy and "\n  traced:\n    race: " in message


def test_without_isolation_it_is_unknown_and_says_what_to_do(tmp_path):
    """A kernel that runs on a GPU accepts no CPU tensors, which is not a mistake of its author."""
    assert verdicts(tmp_path, "triton_kernels.py", "here") == {
        name: ["unknown", SEES_GPU, ""] for name in ("right", "racy")
    }
