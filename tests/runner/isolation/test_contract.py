"""The contract check if calls end or hang their process."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import torch

from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.conformance import Tried
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from tests.plugins import good
from tests.runner.isolation.judging import LAW, hostile, isolated


def half(act):
    """Return an implementation whose float16 calls call act()."""

    def forward(q, k, v):
        if q.dtype == torch.float16:
            act()
        return good.forward(q, k, v)

    return replace(
        good.IMPL, forward=forward, supports=replace(good.IMPL.supports, dtypes={torch.float32, torch.float16})
    )


def verdicts(impl, folder, limit=60.0):
    with isolated(folder, impl, limit=limit) as judging:
        return judging.contract(impl), judging.law(LAW, impl)


def test_calls_that_end_the_process_break_the_contract_and_are_named(tmp_path):
    contract, law = verdicts(hostile(os.abort, above=0), tmp_path)
    assert (contract.verdict, contract.reason) == (PASS, "")  # the cases that are tried have length 64
    assert law.verdict == FAIL
    impl = replace(good.IMPL, forward=lambda q, k, v: os.abort())
    contract, law = verdicts(impl, tmp_path)
    ends = "forward ends the process: signal 6 (abort)"
    assert (contract.verdict, contract.reason) == (FAIL, ends)
    assert f"  {ends}: seqlen_q=64 seqlen_k=64 " in contract.message and "Its laws are not judged" in contract.message
    assert (law.verdict, law.why, law.reason) == (
        UNKNOWN, Reason.CONTRACT, f"the contract is broken (see contract_is_kept): {ends}"
    )  # fmt: skip


def test_laws_are_judged_without_what_ends_the_process(tmp_path):
    contract, law = verdicts(half(os.abort), tmp_path)
    assert contract.verdict == FAIL
    assert contract.reason == "forward ends the process: signal 6 (abort)   [with dtype float16]"
    assert (law.verdict, law.reason) == (PASS, "judged without dtype float16, where the contract is broken")


def test_what_ends_the_process_on_a_cpu_is_no_problem_on_a_gpu(tmp_path):
    """On a machine with a GPU, some laws are judged on the CPU."""
    impl = replace(good.IMPL, name="emulated", devices={"cpu", "cuda"}, forward=lambda q, k, v: os.abort())
    law = replace(LAW, device="cpu")
    with isolated(tmp_path, impl, device="cuda") as judging:
        judging.objects[id(law)] = law
        judging.judge.plan.known.keep_contract(impl, "cuda", Tried([]))  # the contract holds on the GPU
        result = judging.law(law, impl)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.CONTRACT)
    assert judging.judge.plan.known.contract(impl, "cuda").problems == [] and not judging._lost.get(
        ("emulated", "cuda")
    )


def test_a_call_that_does_not_return_leaves_the_contract_unknown(tmp_path):
    contract, law = verdicts(half(lambda: time.sleep(1000)), tmp_path, limit=2.0)
    assert (contract.verdict, contract.why) == (UNKNOWN, Reason.TIMED_OUT)
    assert contract.reason == "forward does not return within 2 s   [with dtype float16]"
    assert (law.verdict, law.reason) == (PASS, "judged without dtype float16, where the contract check timed out")
    assert contract.replay.endswith(" --case-timeout 2")


def test_an_implementation_that_never_returns_is_given_up(tmp_path):
    impl, began = replace(good.IMPL, forward=lambda q, k, v: time.sleep(1000)), time.monotonic()
    contract, law = verdicts(impl, tmp_path, limit=0.5)
    assert (contract.verdict, contract.why) == (UNKNOWN, Reason.TIMED_OUT) and law.verdict == UNKNOWN
    assert contract.message.startswith("good did not return in time when its contract was tried: forward does not ")
    assert law.reason == "the contract check timed out (see contract_is_kept): forward does not return within 0.5 s"
    assert time.monotonic() - began < 60


def test_a_run_of_one_case_passes_on_what_it_has_tried(tmp_path):
    """The next process is spared that part of the contract, and only that part."""
    case = parse_case("seqlen_q=8 headdim=16 dtype=float32")
    with isolated(tmp_path, half(os.abort), case=case, only_case=True) as judging:
        impl = next(iter(judging.judge.entries.values())).impl
        law, known = judging.law(LAW, impl), judging.judge.plan.known
        assert (law.verdict, law.reason) == (PASS, "")
        assert known.contract(impl, judging.judge.plan.contract_key(impl, "cpu")) == Tried([])
        assert known.contract(impl, "cpu") is None
        assert judging.contract(impl).verdict == FAIL
