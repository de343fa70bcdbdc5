"""The cost of comparing launches is measured, and bad input is reported."""

import re
import time

import pytest
import torch

from flash_attest.bench import comparing
from flash_attest.impls import torch_math
from flash_attest.properties.cases.case import Case
from tests.places import PLUGINS

pytestmark = pytest.mark.usefixtures("gpus_stay")
CASE = Case(seqlen_q=8, seqlen_k=8, headdim=8)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(comparing, "TURNS", 1)


def test_every_pass_gets_a_line(capsys):
    assert comparing.main(["--device", "cpu", "--impl", "torch_math", "--size", "1x1x8x8", "--dtype", "fp32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["torch_math"] * 2
    assert [bool(re.search(r"\d us, compared \d+\.\d\d times as long", line)) for line in lines] == [True] * 2


def test_the_cost_is_that_of_comparing(monkeypatch):
    monkeypatch.setattr(comparing.Comparison, "see", lambda self, repeat, results: time.sleep(0.01))
    cost = comparing.cost(torch_math.IMPL, CASE, "cpu", backward=False)
    assert cost.compared - cost.alone > 9_000 and cost.ratio > 1


def test_each_launch_of_a_turn_is_compared(monkeypatch):
    seen = []
    monkeypatch.setattr(comparing.Comparison, "see", lambda self, repeat, results: seen.append((repeat, set(results))))
    comparing.cost(torch_math.IMPL, CASE, "cpu", backward=True)
    assert seen == [
        (repeat, {"out", "lse", "dq", "dk", "dv"}) for _ in range(2) for repeat in range(comparing.LAUNCHES["cpu"])
    ]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--impl", "nobody"], "unknown 'nobody'"),
        (["--size", "8x8"], "'8x8' should be batch x nheads x seqlen x headdim"),
        (["--dtype", "fp8"], "'fp8' should be one of"),
        (["--impl", "torch_flex"], "torch_flex runs on cuda only"),
        (["--impl", ""], "no name given"),
    ],
)
def test_bad_input_is_reported(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        comparing.main(["--device", "cpu", *arguments])
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_what_an_implementation_does_not_take_is_refused(capsys):
    plugin = str(PLUGINS / "good.py")
    assert comparing.main(["--device", "cpu", "--impl-from", plugin, "--dtype", "fp32", "--size", "1x1x8x16"]) == 0
    assert comparing.main(["--device", "cpu", "--impl", "torch_sdpa_flash_cpu", "--size", "1x1x8x8"]) == 1
    good, refused, _ = capsys.readouterr().out.splitlines()
    assert "times as long" in good and "refused: dtype float16 is not supported by torch_sdpa_flash_cpu" in refused


def test_a_case_that_does_not_fit_is_reported(monkeypatch, capsys):
    def full(*_, **__):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(comparing, "make_inputs", full)
    assert comparing.main(["--device", "cpu", "--impl", "torch_math"]) == 1
    assert "does not fit into memory" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_refused(capsys):
    with pytest.raises(SystemExit):
        comparing.main(["--device", "cuda"])
    assert "PyTorch sees no CUDA device" in capsys.readouterr().err
