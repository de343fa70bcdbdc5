"""Calls that kill the GPU context, for example by an illegal access. Another process continues.

A GPU is simulated here: after the first illegal access every call raises, and so does building
inputs. tests/runner/torture/on_gpu.py does the same on a real GPU.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from flash_attest.impls import Implementation
from flash_attest.impls.contract.entry import Entry
from flash_attest.properties import trial
from flash_attest.properties.calling import raised
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.checks import comparisons
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.runner.judge import Judge
from tests.plugins import good
from tests.runner.isolation.judging import LAW, OTHER, isolated

ILLEGAL = "CUDA error: an illegal memory access was encountered"
# Lengths that the contract check does not try. A search finds the smallest soon, and each step of
# it is a process.
SOME = range(3, 60)
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


@pytest.mark.thorough  # a library that notices shrinks in the same way
def test_a_law_that_loses_the_gpu_shrinks_in_processes_of_their_own(tmp_path, gpu, patient):
    impl = faulty(gpu, lambda q: q.shape[1] > 100)  # the contract check tries less
    with isolated(tmp_path, impl) as judging:
        contract, law, after = judging.contract(impl), judging.law(LAW, impl), judging.contract(impl)
    assert contract.verdict == after.verdict == PASS
    assert (law.verdict, law.reason) == (FAIL, RAISES)
    assert law.smallest.startswith("seqlen_q=101 seqlen_k=101 headdim=16 dtype=float32")
    assert "--case 'seqlen_q=101 seqlen_k=101 headdim=16 dtype=float32" in law.replay and law.replay in law.message


def test_the_library_that_notices_may_be_another_one_in_each_process(tmp_path, gpu, patient):
    """The GPU's own error text decides whether two failures are the same."""
    impl = faulty(gpu, lambda q: q.shape[1] in SOME)
    forward = impl.forward

    def noticed(q, k, v):
        try:
            return forward(q, k, v)
        except RuntimeError as error:
            raise RuntimeError(f"CUBLAS_STATUS {os.getpid()} when calling cublasCreate(handle): {error}") from None

    with isolated(tmp_path, impl := replace(impl, forward=noticed)) as judging:
        law, after = judging.law(LAW, impl), judging.contract(impl)
    assert law.verdict == FAIL and law.smallest.startswith("seqlen_q=3 seqlen_k=3 headdim=16 dtype=float32")
    assert f"--case '{law.smallest}'" in law.replay and law.replay in law.message and after.verdict == PASS


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


# --- noticed only later ---------------------------------------------------------------------------

LOSES = f"forward loses the GPU: {ILLEGAL}"


def late(gpu: list[str], where) -> Implementation:
    """Return a correct implementation whose illegal access, if where(q) holds, is noticed later."""

    def forward(q, k, v):
        out = good.forward(q, k, v)
        if where(q):
            gpu[0] = ILLEGAL
        return out

    return replace(good.IMPL, name="late", forward=forward)


READ = "a tensor that is read"


@pytest.fixture(params=["the oracle", pytest.param(READ, marks=pytest.mark.thorough), "nothing"])
def notices(request, gpu, monkeypatch):
    """Make something of the suite's own raise after the GPU was lost: what is next, or nothing."""

    def raising(function):
        def raises(*arguments, **options):
            if gpu[0]:
                raise torch.AcceleratorError(gpu[0])
            return function(*arguments, **options)

        return raises

    if request.param == "the oracle":
        monkeypatch.setattr(trial.oracle, "attention", raising(trial.oracle.attention))
    if request.param == READ:
        monkeypatch.setattr(comparisons, "_check_near", raising(comparisons._check_near))
        monkeypatch.setattr(conformance, "meaning_of_lse", raising(conformance.meaning_of_lse))
    return request.param


@pytest.mark.parametrize(
    "notices",
    ["nothing", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("the oracle", READ))],
    indirect=True,
)
def test_a_law_that_notices_late_names_the_call(tmp_path, gpu, notices, patient):
    impl = late(gpu, lambda q: q.shape[1] in SOME)
    with isolated(tmp_path, impl, good.IMPL) as judging:
        law, after, neighbour = judging.law(LAW, impl), judging.contract(impl), judging.law(LAW, good.IMPL)
    assert (law.verdict, law.reason) == (FAIL, LOSES)
    assert law.smallest.startswith("seqlen_q=3 seqlen_k=3 headdim=16 dtype=float32")
    how = "when the suite raised AcceleratorError: CUDA error" if notices != "nothing" else "no call raised"
    assert f"--case '{law.smallest}'" in law.replay and how in law.message
    assert after.verdict == neighbour.verdict == PASS


def test_a_given_case_that_notices_late_names_the_call(tmp_path, gpu, notices):
    impl = late(gpu, lambda q: q.shape[1] in SOME)
    case = "seqlen_q=3 seqlen_k=3 headdim=16 dtype=float32"
    with isolated(tmp_path, impl) as judging:
        law, after = judging.law(LAW, impl, case=case), judging.law(LAW, impl)
    assert (law.verdict, law.reason, law.smallest) == (FAIL, LOSES, case)
    assert (after.verdict, after.reason) == (FAIL, LOSES)  # judged in another process, where it draws such a length


def test_a_contract_that_notices_late_leaves_out_the_size(tmp_path, gpu, notices):
    impl = late(gpu, lambda q: q.shape[-1] == 24)
    with isolated(tmp_path, impl, good.IMPL) as judging:
        contract, law, neighbour = judging.contract(impl), judging.law(LAW, impl), judging.law(LAW, good.IMPL)
    assert (contract.verdict, contract.reason) == (FAIL, f"{LOSES}   [with headdim 24]")
    assert (law.verdict, law.reason) == (PASS, "judged without headdim 24, where the contract is broken")
    assert neighbour.verdict == PASS


def test_without_isolation_the_call_is_named_and_the_rest_is_undecided(tmp_path, gpu, notices):
    impl = late(gpu, lambda q: q.shape[1] in SOME)
    judge = Judge(Plan(examples=60), [Entry(impl, "", "--impl-from=mine.py")], tmp_path, "main")
    law, after = judge.law(LAW, impl), judge.law(OTHER, impl)
    assert (law.verdict, law.reason) == (FAIL, LOSES) and parse_case(law.smallest).seqlen_q in SOME
    assert (after.verdict, after.why) == (UNKNOWN, Reason.CONTEXT_LOST)
    assert after.reason == f"the GPU context of this process was lost in {LAW.test_id('late')}"


def test_a_gpu_that_is_lost_after_a_law_has_ended_is_of_that_law(tmp_path, gpu, monkeypatch):
    """A thread of the implementation goes on working. The next law has called nothing yet."""
    judge = Judge(Plan(examples=4), [Entry(good.IMPL, "", "--impl-from=mine.py")], tmp_path, "main")
    assert judge.law(LAW, good.IMPL).verdict == PASS
    gpu[0] = ILLEGAL
    result = judge.law(OTHER, good.IMPL)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.CONTEXT_LOST)
    assert result.reason == f"the GPU context of this process was lost in {LAW.test_id('good')}"


def test_a_gpu_that_never_worked_is_no_fault_of_a_call(tmp_path, gpu):
    gpu[0] = ILLEGAL
    judge = Judge(Plan(examples=4, try_contract=False), [Entry(good.IMPL, "")], tmp_path, "main")
    result = judge.law(LAW, good.IMPL)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.CONTEXT_LOST)
    assert result.reason == f"the GPU does not work, before any call of this process: {ILLEGAL}"
