"""If a program's kernels choose their device at import, --device cpu hides the GPUs from them."""

import os
from argparse import Namespace
from functools import partial

import pytest

from flash_attest.bench import options as bench
from flash_attest.mutants.power import command as power

PROGRAMS = {"bench": partial(bench.device_of, bench.parser_of_options()), "mutants": power.device_of}


@pytest.mark.parametrize(("device", "seen"), [("cpu", ""), ("auto", "0")])
@pytest.mark.parametrize("program", PROGRAMS)
def test_asked_for_the_cpu_it_sees_no_gpu(program, device, seen, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    chosen = PROGRAMS[program](Namespace(device=device, emulated=None))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
    assert chosen == "cpu" or device == "auto"


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_a_gpu_it_goes_on(program, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert PROGRAMS[program](Namespace(device="cpu", emulated=None)) == "cpu"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
