"""Laws are judged in a neutral state, whatever the program around them has set."""

import contextlib

import pytest
import torch
from torch.overrides import TorchFunctionMode

from flash_attest import check
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws
from flash_attest.properties.state.neutral import NEUTRAL, neutral
from flash_attest.runner.judge import Judge
from tests.plugins import good

LAW = laws()["test_out_matches_the_definition"]


@contextlib.contextmanager
def default(get, set_, value):
    before = get()
    set_(value)
    try:
        yield
    finally:
        set_(before)


class Raises(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise ValueError("a mode of the program")


SET = {
    "dtype": lambda: default(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "anomaly": torch.autograd.detect_anomaly,
    "mode": Raises,
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", SET)
def test_a_law_holds_whatever_the_program_has_set(name, tmp_path):
    judge = Judge(Plan(examples=2), [], tmp_path, "main")
    with SET[name]():
        verdicts = judge.law(LAW, good.IMPL).verdict, judge.contract(good.IMPL).verdict
    assert verdicts == (PASS, PASS)


def test_the_state_of_the_program_comes_back():
    with SET["dtype"](), SET["autocast"](), SET["no_grad"](), SET["device"]():
        before = [thing.read() for thing, _ in NEUTRAL]
        with neutral():
            assert (torch.get_default_dtype(), torch.empty(0).device.type) == (torch.float32, "cpu")
            assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        assert [thing.read() for thing, _ in NEUTRAL] == before
    assert torch.get_default_device() == torch.device("cpu")


def test_a_script_may_set_a_default_dtype():
    with SET["dtype"]():
        assert check(good.IMPL, laws=["out_matches_the_definition"], profile="smoke", device="cpu").ok
        assert torch.get_default_dtype() is torch.float64
