"""The pytest process never uses CUDA, because otherwise no process that it forks could use CUDA."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.places import PLUGINS, ROOT
from tests.runs import environment

PATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

# Simulates a machine that reports one GPU. The first use of CUDA in a process writes down the
# process number.
RUN = """
import os, sys
import torch

def used(*_):
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()}\\n")
    raise RuntimeError("this GPU is counted, not there")

torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 1
torch._C._cuda_init = torch.cuda._lazy_init = used
import pytest
from flash_attest.impls.contract import registry
from flash_attest.impls.contract.entry import Unloadable
import flash_attest.properties.law, flash_attest.runner.plugin.reporter
flash_attest.properties.law.laws()
problems = [entry.impl.problem for entry in registry.ours() if isinstance(entry.impl, Unloadable)]
assert not problems and not os.path.exists(sys.argv[1]) and not torch.cuda.is_initialized(), problems
status = pytest.main(sys.argv[2:])
print(f"process {os.getpid()} ends with {int(status)}, CUDA {torch.cuda.is_initialized()}")
"""


def test_only_judging_processes_use_cuda(tmp_path):
    """Importing the suite and its implementations does not use it either."""
    users, report = tmp_path / "told", tmp_path / "report"
    options = [
        f"--impl-from={PLUGINS / 'good.py'}",
        f"--report={report}",
        "--device=cuda",
        "-p",
        "no:randomly",
    ]
    run = subprocess.run(
        [sys.executable, "-c", RUN, str(users), *options, "properties/test_forward.py", "properties/test_contract.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
        env=environment() | {"CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": PATH},
    )  # fmt: skip
    last = run.stdout.splitlines()[-1]
    assert last.endswith("ends with 1, CUDA False"), run.stdout + run.stderr
    assert last.split()[1] not in users.read_text().split()
    results = json.loads((report / "results.json").read_text())["results"]
    reason = "no judging process comes up: exit status 1; RuntimeError: this GPU is counted, not there"
    assert {(r["verdict"], r["reason"]) for r in results} == {("unknown", reason)}


def test_gpus_are_counted_without_cuda():
    assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
