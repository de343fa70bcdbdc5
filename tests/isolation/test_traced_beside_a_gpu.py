"""On a machine with a GPU a plug-in's kernels in Triton or Numba are traced in a process that sees none; others are unknown.

No kernel runs on a GPU: CUDA_VISIBLE_DEVICES names one, which has each process believe that there is one.
"""

from __future__ import annotations

import json

import pytest

from properties.plugin.session import SEES_GPU
from tests.impls.runs import ROOT, python

JUDGED = """
import json, os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
from functools import partial
from pathlib import Path
from impls.registry import from_file
from properties.gpus import emulate_if_no_gpu
from properties.isolation.isolated import Isolated
from properties.law import laws
from properties.judging.plan import Plan
from properties.plugin.process import prepare
from properties.plugin.session import Judge

FILE, REPORT, ISOLATED = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "isolated"
if __name__ == "__main__":
    emulate_if_no_gpu()  # as conftest.py calls it
    entries = from_file(FILE)
    plan = Plan(device="cuda", examples=2)
    judge = Judge(plan, entries, REPORT, "main")
    objects = [*laws().values(), *(entry.impl for entry in entries)]
    judging = Isolated(judge, partial(prepare, is_worker=True), objects, 120.0, False) if ISOLATED else judge
    found = {entry.name: judging.law(laws()["test_no_race_is_traced"], entry.impl) for entry in entries}
    judging.close()
    print(json.dumps({name: [result.verdict, result.reason, result.message] for name, result in found.items()}))
"""


def verdicts(tmp_path, file, how):
    (tmp_path / "judged.py").write_text(JUDGED)
    run = python(tmp_path / "judged.py", ROOT / "tests" / "plugins" / file, tmp_path, how, PYTHONPATH=str(ROOT))
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("file", ("triton_kernels.py", "numba_kernels.py"))
def test_a_plug_in_is_traced_in_a_process_without_the_gpu(file, tmp_path):
    found = verdicts(tmp_path, file, "isolated")
    assert found["right"][0] == "pass", found["right"]
    assert found["racy"][0] == "fail" and found["racy"][1].startswith("race: "), found["racy"]


def test_without_isolation_it_is_unknown_and_says_what_to_do(tmp_path):
    """A kernel that runs on a GPU takes no CPU tensors, which is no mistake of its author."""
    assert verdicts(tmp_path, "triton_kernels.py", "here") == {
        name: ["unknown", SEES_GPU, ""] for name in ("right", "racy")
    }
