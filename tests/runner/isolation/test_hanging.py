"""Implementations that hang the process that calls them are reported, and cost no other
implementation its verdict.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest

from flash_attest.emulator.build_cache import counted
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.progress import NOW
from tests.plugins import good
from tests.runner.isolation.judging import LAW, LONG, endless, hostile, isolated, judged


def busy():
    while True:
        pass


def deadlock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(busy, id="python"),
        pytest.param(lambda: ctypes.PyDLL(None).pause(), id="c"),  # holds the interpreter's lock
        pytest.param(lambda: os.kill(os.getpid(), signal.SIGSTOP), id="stopped"),
        *(
            pytest.param(act, id=name, marks=pytest.mark.thorough)
            for name, act in (
                ("regex", lambda: re.match(r"(a+)+$", 60 * "a" + "b")),
                ("sleep", lambda: time.sleep(1000)),
                ("deadlock", deadlock),
            )
        ),
    ],
)
def test_a_call_that_does_not_return_is_unknown_with_its_case(act, tmp_path):
    started = time.monotonic()
    result, neighbour = judged(act, tmp_path, case=LONG, limit=0.3)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.TIMED_OUT)
    assert result.reason == "forward does not return within 0.3 s" and result.smallest == str(LONG)
    assert result.replay.endswith(f"--case-timeout 0.3 --case '{LONG}'")
    assert neighbour.verdict == PASS and time.monotonic() - started < 120


def test_the_law_goes_on_without_the_case_that_hangs(tmp_path):
    lengths = tmp_path / "lengths"

    def forward(q, k, v):
        length = q.shape[1]
        with open(lengths, "a") as file:
            file.write(f"{length}\n")
        if length == hung:
            endless()
        return good.forward(q, k, v)

    impl, hung = replace(good.IMPL, name="hangs", forward=forward), 0
    with isolated(tmp_path, impl, try_contract=False) as judging:
        assert judging.law(LAW, impl).verdict == PASS
    drawn = lengths.read_text().split()
    hung = int(min(drawn, key=drawn.count))  # a law gives up when three cases hang
    lengths.unlink()
    with isolated(tmp_path, impl, try_contract=False, limit=2.0) as judging:
        result = judging.law(LAW, impl)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.TIMED_OUT)
    times = drawn.count(str(hung))
    assert (
        times <= 3 and result.reason == f"forward does not return within 2 s; right on {len(drawn) - times} other cases"
    )
    assert set(lengths.read_text().split()) == set(drawn)  # the same cases, including the others


def test_a_wrong_result_is_a_failure_although_cases_beside_it_hang(tmp_path):
    """Neighbouring cases are called to explain the failure."""

    def forward(q, k, v):
        if q.shape[1] > 80:
            endless()
        return good.forward(q, k, v) + (q.shape[1] > 20)

    impl = replace(good.IMPL, name="hangs", forward=forward)
    short = parse_case("seqlen_q=75 seqlen_k=75 headdim=16 dtype=float32")
    # Ten times the limit is allowed outside of calls: a busy machine imports modules there.
    with isolated(tmp_path, impl, try_contract=False, limit=3.0, case=short) as judging:
        result = judging.law(LAW, impl)
    assert result.verdict == FAIL and result.reason.startswith("out[")
    assert result.smallest == str(short) and result.replay.endswith(f"--case '{short}'")


def test_an_implementation_that_always_hangs_ends_the_run_in_time(tmp_path):
    impl = hostile(endless)
    with isolated(tmp_path, impl, limit=0.2) as judging:
        reasons = [judging.law(LAW, impl).reason for _ in range(5)]
    assert reasons[-1] == "not judged: 9 calls did not return in time"


def test_the_limit_is_longer_while_something_compiles(tmp_path):
    compiler = tmp_path / "cc1plus"
    shutil.copy(shutil.which("sleep"), compiler)
    impl = hostile(lambda: subprocess.run([compiler, "2.5"], check=True))
    with isolated(tmp_path, impl, limit=1.0, case=LONG) as judging:
        assert judging.law(LAW, impl).verdict == PASS


@pytest.mark.parametrize("compiles", (False, True))
def test_a_call_that_compiles_in_its_own_process_has_more_time(compiles, tmp_path):
    def act():
        with counted() if compiles else nullcontext():  # as our builds do, also while they wait for another worker
            time.sleep(2)

    impl = hostile(act)
    with isolated(tmp_path, impl, limit=1.0, case=LONG) as judging:
        assert judging.law(LAW, impl).verdict == (PASS if compiles else UNKNOWN)


def test_what_a_compiler_tells_afterwards_counts_too(tmp_path):
    def act():
        time.sleep(0.2)
        NOW.compiled(60.0)
        time.sleep(1.5)

    impl = hostile(act)
    with isolated(tmp_path, impl, limit=1.0, case=LONG) as judging:
        assert judging.law(LAW, impl).verdict == PASS


def test_without_a_limit_a_call_takes_what_it_takes(tmp_path):
    impl = hostile(lambda: time.sleep(1))
    with isolated(tmp_path, impl, limit=0, case=LONG) as judging:
        assert judging.law(LAW, impl).verdict == PASS
