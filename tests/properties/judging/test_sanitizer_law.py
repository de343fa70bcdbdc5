"""The law about compute-sanitizer, tested on a CPU: another program takes the tool's place and runs
the case.
"""

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from flash_attest.impls import torch_math
from flash_attest.impls.contract.loading import from_file
from flash_attest.properties import test_races
from flash_attest.properties.calling.caller import Caller
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import LawBroken, Reason
from flash_attest.properties.judging import asynchronous, sanitized
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.origin import OwnRun
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.properties.progress import NOW
from flash_attest.races.sanitizer import Tool
from flash_attest.runner import alone
from flash_attest.runner.green import Asked, not_green, verdict_line
from tests.places import ROOT
from tests.races.fake_sanitizer import CLEAN, fake
from tests.trials import lines

LOGS = ROOT / "tests/races/sanitizer_logs"
LAW = replace(laws()["test_sanitizers_report_nothing"], device=None)  # as a GPU would judge it
PLUGIN = "tests/plugins/good.py"
CASE = parse_case("seqlen_q=70 seqlen_k=70 headdim=16 dtype=float32")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Replace compute-sanitizer by a program. `forward` is the kernel of every implementation."""

    def install(**how) -> None:
        program = fake(tmp_path, **how)
        monkeypatch.setattr(sanitized.sanitizer, "find", lambda: program)
        have_kernels(monkeypatch, lambda trial: ["forward"])

    return install


def have_kernels(monkeypatch, kernels_of) -> None:
    """Make kernels_of(trial) return the kernels that there are to watch."""
    monkeypatch.setattr(test_races, "kernels_of", kernels_of)
    monkeypatch.setattr(sanitized, "kernels_of", kernels_of)


def judged(impl=torch_math.IMPL, **plan):
    return judge(LAW, impl, Plan(**{"examples": 4, "try_contract": False, "alone": alone.command, **plan}))


def test_a_plug_in_is_found_in_the_other_process(installed, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(test_races.sanitized, "__defaults__", ([Tool.RACECHECK],))
    installed()
    (entry,) = from_file(PLUGIN)
    result = judged(entry.impl, case=CASE, origin=OwnRun(f"--impl-from={PLUGIN}"))
    assert (result.verdict, result.reason) == (PASS, "nothing reported for 1 case of forward")


def test_findings_of_all_tools_are_one_set_with_their_cases(installed, patient):
    installed(runs=False, **{name: (LOGS / f"{name}.log").read_text() for name in ("racecheck", "synccheck")})
    result = judged()
    assert result.verdict == FAIL and result.cases < 200
    assert (
        result.reason == "race: shared memory, read and write, no barrier between, fa2_forward.cuh:76 and tiles.cuh:55"
    )
    observed = lines(result.message)
    assert "5 findings in 2 cases, each with its smallest case" in observed
    assert "barrier: Divergent thread(s) in warp, 09_debug_and_sanitizer.cu:61" in observed
    assert sum(line.startswith("smallest case, of 2 that show it: seqlen_q=65 seqlen_k=65") for line in observed) == 5


def test_a_tool_that_says_nothing_is_unknown_and_the_others_findings_are_findings(installed):
    installed(runs=False, memcheck="")
    result = judged(case=CASE)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.RESOURCES)
    assert result.reason.startswith("memcheck ended without a summary, with exit status 0")
    installed(runs=False, memcheck="", racecheck=(LOGS / "racecheck_older.log").read_text())
    assert judged(case=CASE).reason.startswith("race: shared memory, read and write")


def test_without_the_tool_it_is_unknown_and_the_run_is_green(monkeypatch):
    monkeypatch.setattr(sanitized.sanitizer, "find", lambda: None)
    result = judged()
    assert (result.verdict, result.why) == (UNKNOWN, Reason.NO_SANITIZER)
    assert result.reason.startswith("no compute-sanitizer found in CUDA_HOME, CUDA_PATH, PATH and /usr/local/cuda*")
    held = replace(result, verdict=PASS, why=None)
    assert not_green([result.as_dict(), held.as_dict()], Asked(named=True)) == ""


def test_an_implementation_of_pytorchs_operators_is_refused_after_a_few_looks(installed, monkeypatch, few_tried):
    installed(runs=False)
    looks = []
    have_kernels(monkeypatch, lambda trial: looks.append(trial.case) or [])
    for examples in (4, 3000):
        looks.clear()
        result = judged(examples=examples)
        assert (result.verdict, result.why) == (REFUSED, Reason.NO_CASE)
        assert result.reason == "launches only kernels of PyTorch's operators in 5 cases"
        assert test_races.MOST_LOOKS <= len(looks) <= test_races.MOST_LOOKS + 2 * sanitized.TOGETHER


def test_one_case_without_kernels_does_not_end_the_law(installed, monkeypatch):
    """An implementation may delegate some cases to PyTorch."""
    installed(runs=False)
    kernels = iter([[], ["forward"], [], ["backward"]])
    have_kernels(monkeypatch, lambda trial: next(kernels, []))
    result = judged(examples=200)
    assert (result.verdict, result.cases) == (PASS, 2)
    assert result.reason == "nothing reported for 2 cases of backward, forward"


@pytest.fixture
def programs(monkeypatch):
    """Record the cases of each start of the tools."""
    started, command = [], alone.command

    def noted(device, name, cases, options):
        started.append(cases)
        return command(device, name, cases, options)

    monkeypatch.setattr(alone, "command", noted)
    return started


def test_cases_without_a_finding_share_their_processes(installed, programs):
    installed(runs=False)
    result = judged(examples=600)
    assert (result.verdict, result.cases) == (PASS, 6)
    assert [len(cases) for cases in programs] == [sanitized.TOGETHER, 2]
    assert len({case for cases in programs for case in cases}) == 6


def test_a_case_beside_one_with_a_finding_is_watched_alone(installed, programs):
    installed(runs=False, racecheck=(LOGS / "racecheck.log").read_text())
    assert judged(goes_on=False).verdict == FAIL
    assert len(programs[0]) == 2 and {len(cases) for cases in programs[1:]} == {1}


def test_what_no_case_shows_by_itself_is_a_finding(installed, monkeypatch, tmp_path):
    """A larger case may overrun scratch memory that a smaller one has allocated."""
    command, log = alone.command, (LOGS / "racecheck.log").read_text()

    def reported_of_several(device, name, cases, options):
        fake(tmp_path, runs=False, **({"racecheck": log} if len(cases) > 1 else {}))
        return command(device, name, cases, options)

    installed()
    monkeypatch.setattr(alone, "command", reported_of_several)
    result = judged()
    assert result.verdict == FAIL and result.reason.startswith("not on every run: race: shared memory, ")
    observed = lines(result.message)
    after = observed.index("with these cases called one after another in one process")
    assert all(line.startswith("seqlen_q=") for line in observed[after + 1 : after + 3])


def test_a_call_that_raises_once_is_a_finding(installed, monkeypatch):
    installed(runs=False)
    errors = [LawBroken("forward raises RuntimeError: no")]

    def kernels_of(trial):
        if errors:
            raise errors.pop()
        return ["forward"]

    have_kernels(monkeypatch, kernels_of)
    result = judged()
    assert (result.verdict, result.reason) == (FAIL, "not on every run: forward raises RuntimeError: no")


def test_memory_that_runs_out_beside_other_cases_leaves_each_to_itself(installed, programs, monkeypatch):
    installed(runs=False)
    errors = [RuntimeError("CUDA out of memory. Tried to allocate 1 GiB"), None]

    def kernels_of(trial):
        if errors and (error := errors.pop(0)):
            raise error
        return ["forward"]

    have_kernels(monkeypatch, kernels_of)
    assert judged().verdict == PASS and [len(cases) for cases in programs] == [1, 1]


def test_a_gpu_that_is_lost_beside_other_cases_is_a_failure_with_its_case(installed, monkeypatch):
    installed(runs=False)
    works = [True]
    monkeypatch.setattr(Caller, "device_works", lambda self: works[0])

    def kernels_of(trial):
        works[0] = False
        lost_in.append(str(trial.case))
        raise LawBroken("forward raises RuntimeError: an illegal memory access")

    lost_in: list[str] = []
    have_kernels(monkeypatch, kernels_of)
    result = judged()
    assert (result.verdict, result.cases) == (FAIL, 1) and result.smallest == lost_in[0]


def test_a_call_that_raises_among_others_is_told_with_its_case(installed, monkeypatch):
    installed(runs=False)

    def kernels_of(trial):
        if trial.case.causal:
            raise LawBroken("forward raises RuntimeError: no")
        return ["forward"]

    have_kernels(monkeypatch, kernels_of)
    result = judged(examples=600)
    assert (result.verdict, result.reason) == (FAIL, "forward raises RuntimeError: no") and "causal" in result.smallest


def test_waiting_for_it_is_a_sign_of_life(installed, monkeypatch):
    """The parent would end a judging process that is silent for long outside of a call."""
    NOW.reset()  # an earlier test may have had a process that died in a call
    installed(runs=False)
    signs = []
    monkeypatch.setattr(NOW, "lives", lambda: signs.append(NOW.seen()))
    assert judged(case=CASE).verdict == PASS and signs and not any(seen.in_call for seen in signs)
    monkeypatch.undo()
    NOW.begins("properties/test_races.py::test_x[y] seqlen_q=1")
    time.sleep(1.0)
    NOW.lives()
    assert NOW.seen().seconds < 0.8


def test_the_process_ends_with_the_one_that_waits_for_it():
    """The process also ends if the tool between the two does not notice."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as judging:
        waits = f"from flash_attest.runner import alone; import time; alone.end_with({judging.pid}); print(); time.sleep(999)"
        with subprocess.Popen([sys.executable, "-uc", waits], cwd=ROOT, stdout=subprocess.PIPE) as watched:
            watched.stdout.readline()
            assert watched.poll() is None
            judging.kill()
            assert watched.wait(60) == 1


# --- kernels of the asynchronous proxy ------------------------------------------------------------

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
