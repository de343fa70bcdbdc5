"""--device cpu on a machine with GPUs: a program that chooses its device by importing is started again without them."""

import os
import subprocess
import sys

import pytest

from properties.gpus import start_again_without_gpus
from tests.properties.warm import ROOT

SHOWS = (
    "import os, sys; from properties.gpus import start_again_without_gpus; start_again_without_gpus()\n"
    "print(repr(os.environ['CUDA_VISIBLE_DEVICES']), *sys.argv[1:])"
)


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [("--device cpu -x", "''"), ("--device=cpu y", "''"), ("--device auto z", "'0'"), ("", "'0'")],
)
def test_asked_for_the_cpu_it_sees_no_gpu(arguments, seen):
    command = [sys.executable, "-c", SHOWS, *arguments.split()]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "0"}
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [seen, *arguments.split()]


@pytest.mark.parametrize("arguments", [["--device", "cpu"], ["--device"]])
def test_without_a_gpu_it_goes_on(arguments, monkeypatch):
    """Also with an option that the program itself will complain of."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("started again"))
    start_again_without_gpus()
