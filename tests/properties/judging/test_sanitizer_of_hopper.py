"""The law about compute-sanitizer on kernels of TMA, mbarriers and wgmma, whose order the tools do
not know.
"""

from dataclasses import replace

import pytest

from flash_attest.impls import torch_math
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging import asynchronous, sanitized
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.races.sanitizer import Tool
from flash_attest.runner.green import Asked, not_green, verdict_line
from tests.properties.judging.sanitizing import CASE, LOGS, have_kernels, judged
from tests.races.fake_sanitizer import CLEAN, fake

RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void cutlass::device_kernel<flash::Fwd>(T1::Params)+0x7bf0
=========     and Read access at void cutlass::device_kernel<flash::Fwd>(T1::Params)+0x8000 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
MISSING_WAIT = """========= COMPUTE-SANITIZER
========= Barrier error detected. Missing wait.
=========     at void cutlass::device_kernel<flash::Fwd>(T1::Params)+0xa5e0
=========     by thread (64,0,0) in block (4,0,0)
=========     Barrier is located at shared address 0x30c00
=========
========= ERROR SUMMARY: 1 error
"""
HEADLINE = "race: shared memory, write and read, no barrier between, device_kernel+0x7bf0 and device_kernel+0x8000"
NO_RACE = CLEAN[Tool.RACECHECK]
TWICE = "synccheck takes a cp.async that arrives at an mbarrier for a second arrival of its thread"
ENDED = "synccheck misses threads that have arrived at a named barrier, without waiting, and have ended"
UNKNOWN_ORDER = "racecheck does not know the order that TMA, mbarriers and wgmma give to accesses"


@pytest.fixture
def hopper(installed, monkeypatch):
    """Make the GPU one of sm_90, with these kernels.

    code: the instructions of the asynchronous proxy that each uses, or why it cannot be read.
    """

    def make(code: dict, **how) -> None:
        installed(runs=False, **how)
        have_kernels(monkeypatch, lambda trial: sorted(code))

        def look(self, kernel):
            if isinstance(code[kernel], str):
                raise LookupError(code[kernel])
            return code[kernel]

        monkeypatch.setattr(asynchronous, "capability_of", lambda device: (9, 0))
        monkeypatch.setattr(asynchronous.MachineCode, "asynchronous", look)

    return make


def test_a_race_in_a_kernel_of_tma_is_not_judged_and_the_run_is_green(hopper):
    hopper({"device_kernel": ["HGMMA", "SYNCS", "UTMALDG"]}, racecheck=RACE)
    result = judged()
    assert (result.verdict, result.why) == (UNKNOWN, Reason.ASYNCHRONOUS)
    assert result.reason == (
        f"{HEADLINE}: not judged, as {UNKNOWN_ORDER}, and device_kernel uses HGMMA, SYNCS, UTMALDG; nothing else is reported"
    )
    both = [result.as_dict(), replace(result, verdict=PASS, why=None).as_dict()]
    assert not_green(both, Asked(named=True)) == ""
    assert verdict_line(both, Asked(named=True)) == "green: 1 law holds; 1 is beyond racecheck"


def test_cases_that_racecheck_cannot_judge_are_watched_once(hopper, monkeypatch):
    """They need minutes: each start of a tool takes seconds, and the machine code half a minute."""
    watch, starts = sanitized.sanitizer.watch, []
    monkeypatch.setattr(sanitized.sanitizer, "watch", lambda *how, **more: starts.append(how) or watch(*how, **more))
    hopper({"device_kernel": ["SYNCS"]}, racecheck=RACE)
    assert judged(examples=8).why is Reason.ASYNCHRONOUS
    assert len(starts) == 1  # for all cases together


def test_a_finding_beside_races_that_cannot_be_judged_is_no_flaky_one(hopper, monkeypatch, tmp_path):
    """One group of cases shows only such races, a later one an access outside of memory."""
    watch, starts = sanitized.sanitizer.watch, []

    def second_is_wrong(*how, **more):
        starts.append(how)
        memcheck = {"memcheck": (LOGS / "memcheck.log").read_text()} if len(starts) > 1 else {}
        fake(tmp_path, runs=False, racecheck=RACE, **memcheck)
        return watch(*how, **more)

    hopper({"device_kernel": ["SYNCS"]}, racecheck=RACE)
    monkeypatch.setattr(sanitized.sanitizer, "watch", second_is_wrong)
    monkeypatch.setattr(sanitized, "TOGETHER", 1)
    result = judged(examples=8)
    assert result.verdict == FAIL and result.reason.startswith("outside: write of 4 bytes in global memory")


def test_a_missing_wait_in_a_kernel_of_mbarriers_is_not_judged(hopper):
    hopper({"device_kernel": ["ARRIVES", "SYNCS"]}, synccheck=MISSING_WAIT)
    result = judged(case=CASE)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.ASYNCHRONOUS)
    assert result.reason == (
        f"barrier: Missing wait, device_kernel+0xa5e0: not judged, as {TWICE}, and "
        "device_kernel uses ARRIVES, SYNCS; nothing else is reported"
    )


def test_divergence_is_not_judged_where_threads_arrive_without_waiting(hopper):
    """A producer arrives for its consumers, and ends. Whether it may do so, its code shows."""
    divergent = MISSING_WAIT.replace("Missing wait", "Divergent thread(s) in block")
    hopper({"device_kernel": ["BAR.ARV", "SYNCS"]}, synccheck=divergent)
    result = judged(case=CASE)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.ASYNCHRONOUS)
    assert result.reason == (
        f"barrier: Divergent thread(s) in block, device_kernel+0xa5e0: not judged, as {ENDED}, and "
        "device_kernel uses BAR.ARV, SYNCS; nothing else is reported"
    )
    hopper({"device_kernel": "its machine code was not found"}, synccheck=divergent)
    assert (judged(case=CASE).verdict, judged(case=CASE).why) == (UNKNOWN, Reason.RESOURCES)


def test_other_barrier_errors_count_in_such_a_kernel(hopper):
    """Errors of an ordinary kernel beside it count, too: synccheck watches it once more."""
    divergent = MISSING_WAIT.replace("Missing wait", "Divergent thread(s) in block")
    hopper({"device_kernel": ["SYNCS"]}, synccheck=divergent)
    assert judged(case=CASE).reason == "barrier: Divergent thread(s) in block, device_kernel+0xa5e0"
    alone = {"synccheck:reduce_parts": MISSING_WAIT.replace("device_kernel<flash::Fwd>", "reduce_parts<float>")}
    hopper({"device_kernel": ["SYNCS"], "reduce_parts": []}, synccheck=MISSING_WAIT, **alone)
    assert judged(case=CASE).reason == "barrier: Missing wait, reduce_parts+0xa5e0"


def test_what_traces_the_kernels_is_named(hopper):
    hopper({"device_kernel": ["SYNCS"]}, racecheck=RACE)
    result = judged(replace(torch_math.IMPL, traced=True), case=CASE)
    test = laws()["test_no_race_is_traced"].test_id(torch_math.IMPL.name)
    assert result.reason.endswith(f"; trace it without a GPU: pytest '{test}' --device cpu --emulated 90")


def test_memcheck_counts_in_such_a_kernel(hopper):
    hopper({"device_kernel": ["SYNCS"]}, racecheck=RACE, memcheck=(LOGS / "memcheck.log").read_text())
    result = judged(case=CASE)
    assert result.verdict == FAIL and result.reason.startswith("outside: write of 4 bytes in global memory")
    assert "device_kernel" not in result.message


def test_a_race_in_an_ordinary_kernel_beside_it_counts(hopper):
    """racecheck watches the ordinary kernels once more without the others."""
    alone = {"racecheck:reduce_parts": (LOGS / "racecheck_older.log").read_text()}
    hopper({"device_kernel": ["SYNCS"], "reduce_parts": []}, racecheck=RACE, **alone)
    result = judged(case=CASE)
    assert result.verdict == FAIL and "convolution.cu:123" in result.reason and "device_kernel" not in result.message


def test_ordinary_kernels_beside_it_may_be_right(hopper):
    hopper({"device_kernel": ["SYNCS"], "reduce_parts": []}, racecheck=RACE, **{"racecheck:reduce_parts": NO_RACE})
    assert judged(case=CASE).why is Reason.ASYNCHRONOUS


def test_a_race_in_ordinary_kernels_alone_is_a_failure(hopper):
    hopper({"device_kernel": []}, racecheck=RACE)
    result = judged(case=CASE)
    assert (result.verdict, result.reason) == (FAIL, HEADLINE)


def test_a_kernel_whose_code_cannot_be_read_is_undecided_with_the_reason(hopper):
    hopper({"device_kernel": "no cuobjdump found"}, racecheck=RACE)
    result = judged(case=CASE)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.RESOURCES)
    assert "device_kernel may use them: no cuobjdump found; nothing else is reported" in result.reason
    assert not_green([result.as_dict()], Asked(named=True)) == "1 could not be decided"


def test_a_tool_without_an_answer_is_told_beside_it(hopper):
    hopper({"device_kernel": ["SYNCS"]}, racecheck=RACE, memcheck="")
    result = judged(case=CASE)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.RESOURCES)
    assert UNKNOWN_ORDER in result.reason and "memcheck ended without a summary" in result.reason


def test_a_pass_says_what_racecheck_does_not_know(hopper):
    hopper({"device_kernel": ["SYNCS"], "reduce_parts": []})
    result = judged()
    assert (result.verdict, result.reason) == (
        PASS,
        f"nothing reported for 2 cases of device_kernel, reduce_parts; {UNKNOWN_ORDER} in device_kernel",
    )


def test_a_gpu_without_the_asynchronous_proxy_needs_no_look(hopper, monkeypatch):
    hopper({"device_kernel": "not looked at"}, racecheck=RACE)
    monkeypatch.setattr(asynchronous, "capability_of", lambda device: (8, 9))
    assert judged(case=CASE).verdict == FAIL
