"""Calls that kill the GPU context, for example by an illegal access. Another process continues.

A GPU is simulated here: after the first illegal access every call raises, and so does building
inputs. tests/runner/torture/on_gpu.py does the same on a real GPU.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from flash_attest.impls import Implementation
from flash_attest.properties import trial
from flash_attest.properties.calling import raised
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from tests.plugins import good
from tests.runner.isolation.judging import LAW, isolated

ILLEGAL = "CUDA error: an illegal memory access was encountered"
RAISES = f"forward raises RuntimeError: {ILLEGAL}"


@pytest.fixture
def gpu(monkeypatch):
    """The simulated error of this process's GPU: [""] while the GPU works."""
    error, build = [""], trial.build

    def build_on_gpu(case, device):
        if error[0]:
            raise RuntimeError(error[0])
        return build(case, device)

    monkeypatch.setattr(raised, "device_error", lambda device: error[0])
    monkeypatch.setattr(trial, "build", build_on_gpu)
    return error


def faulty(gpu: list[str], where) -> Implementation:
    """Return a correct implementation that makes an illegal access if where(q) holds."""

    def forward(q, k, v):
        if where(q):
            gpu[0] = ILLEGAL
        if gpu[0]:
            raise RuntimeError(gpu[0])
        return good.forward(q, k, v)

    return replace(good.IMPL, name="faulty", forward=forward)


def test_a_contract_that_loses_the_gpu_in_every_call_is_broken(tmp_path, gpu):
    impl = faulty(gpu, lambda q: True)
    with isolated(tmp_path, impl) as judging:
        contract, law = judging.contract(impl), judging.law(LAW, impl)
    assert (contract.verdict, contract.reason) == (FAIL, RAISES)
    assert f"  {RAISES}: seqlen_q=64 seqlen_k=64 " in contract.message and "Its laws are not judged" in contract.message
    assert (law.verdict, law.why) == (UNKNOWN, Reason.CONTRACT)
    assert law.reason == f"the contract is broken (see contract_is_kept): {RAISES}"


def test_laws_are_judged_without_the_size_that_loses_the_gpu(tmp_path, gpu):
    impl = faulty(gpu, lambda q: q.shape[-1] == 24)
    with isolated(tmp_path, impl, good.IMPL) as judging:
        contract, law, neighbour = judging.contract(impl), judging.law(LAW, impl), judging.law(LAW, good.IMPL)
    assert (contract.verdict, contract.reason) == (FAIL, f"{RAISES}   [with headdim 24]")
    assert (law.verdict, law.reason) == (PASS, "judged without headdim 24, where the contract is broken")
    assert neighbour.verdict == PASS


def test_a_law_that_loses_the_gpu_shrinks_in_processes_of_their_own(tmp_path, gpu, patient):
    impl = faulty(gpu, lambda q: q.shape[1] > 40 and q.shape[1] != 64)  # the contract check tries 64
    with isolated(tmp_path, impl) as judging:
        contract, law, after = judging.contract(impl), judging.law(LAW, impl), judging.contract(impl)
    assert contract.verdict == after.verdict == PASS
    assert (law.verdict, law.reason) == (FAIL, RAISES)
    assert law.smallest.startswith("seqlen_q=41 seqlen_k=41 headdim=16 dtype=float32") and law.cases > 1
    assert "--case 'seqlen_q=41 seqlen_k=41 headdim=16 dtype=float32" in law.replay and law.replay in law.message


def test_the_library_that_notices_may_be_another_one_in_each_process(tmp_path, gpu, patient):
    """The GPU's own error text decides whether two failures are the same."""
    impl = faulty(gpu, lambda q: q.shape[1] > 40 and q.shape[1] != 64)
    forward = impl.forward

    def noticed(q, k, v):
        try:
            return forward(q, k, v)
        except RuntimeError as error:
            raise RuntimeError(f"CUBLAS_STATUS {os.getpid()} when calling cublasCreate(handle): {error}") from None

    with isolated(tmp_path, impl := replace(impl, forward=noticed)) as judging:
        law = judging.law(LAW, impl)
    assert law.verdict == FAIL and law.smallest.startswith("seqlen_q=41 seqlen_k=41 headdim=16 dtype=float32")


def test_a_gpu_that_is_lost_while_a_failure_is_explained_costs_no_verdict(tmp_path, gpu):
    """The result is wrong at length 3, and a neighbouring length makes an illegal access."""
    impl = faulty(gpu, lambda q: q.shape[1] == 16)
    forward = impl.forward

    def wrong(q, k, v):
        return forward(q, k, v) + (q.shape[1] == 3)

    with isolated(tmp_path, impl := replace(impl, forward=wrong), good.IMPL) as judging:
        law = judging.law(LAW, impl, case="seqlen_q=3 seqlen_k=3 headdim=16 dtype=float32", goes_on=True)
        neighbour = judging.law(LAW, good.IMPL)
    assert law.verdict == FAIL and "times what rounding explains" in law.reason and neighbour.verdict == PASS
    lost = f"a further call loses the GPU: {RAISES}, with seqlen_q=16 seqlen_k=16 headdim=16 dtype=float32"
    assert lost in law.message


def test_a_given_case_that_loses_the_gpu_is_not_shrunk(tmp_path, gpu):
    impl = faulty(gpu, lambda q: q.shape[1] > 40 and q.shape[1] != 64)
    with isolated(tmp_path, impl) as judging:
        law = judging.law(LAW, impl, case="seqlen_q=70 seqlen_k=70 headdim=16 dtype=float32")
    assert (law.verdict, law.smallest) == (FAIL, "seqlen_q=70 seqlen_k=70 headdim=16 dtype=float32")
