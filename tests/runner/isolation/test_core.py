"""Implementations that end the process that calls them are reported, and cost no other
implementation its verdict.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import OutOfMemory, Reason
from flash_attest.properties.judging.plan import REPEATS
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN
from flash_attest.properties.progress import NOW
from flash_attest.runner.descendants import descendants
from flash_attest.runner.isolation import crashes
from flash_attest.runner.isolation import isolated as module
from flash_attest.runner.isolation.parent import answer_of
from tests.plugins import good
from tests.runner.isolation.judging import LAW, LONG, OTHER, descriptors, endless, hostile, isolated, judged


def test_a_process_for_one_case_is_not_taken_for_the_one_that_judges(tmp_path):
    """The check for compilers and hanging calls looks at the process of the call in progress."""
    with isolated(tmp_path, good.IMPL) as judging:
        assert judging.law(LAW, good.IMPL).verdict == PASS
        process = judging._process
        judges, up = process.number, NOW.process
        judging.ended_by(LAW, good.IMPL, LONG, 60.0)
        assert judges == up == process.number != NOW.process


@pytest.mark.parametrize("function", ("fork", "pidfd_open"))
def test_a_process_that_cannot_be_started_leaves_nothing(function, monkeypatch):
    def fails(*_):
        raise OSError("too many")

    def start() -> None:
        with monkeypatch.context() as patch, suppress(OSError):
            patch.setattr(os, function, fails)
            answer_of(dict, limit=60.0)
            pytest.fail(f"os.{function} was not called")

    def state() -> tuple:
        return descriptors(), signal.pthread_sigmask(signal.SIG_BLOCK, ()), descendants(os.getpid())

    before = state()
    start()
    assert state() == before
    assert answer_of(lambda: {"up": True}, limit=60.0) == {"up": True}


# --- the process ends -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "ending"),
    [
        pytest.param(lambda: ctypes.string_at(0), "signal 11 (segmentation fault)", id="segv"),
        pytest.param(lambda: os._exit(0), "exit status 0", id="exit_0"),
        *(
            pytest.param(act, ending, id=name, marks=pytest.mark.thorough)
            for name, act, ending in (
                ("abort", os.abort, "signal 6 (abort)"),
                ("fpe", lambda: os.kill(os.getpid(), signal.SIGFPE), "signal 8 (arithmetic error)"),
                ("exit_of_c", lambda: ctypes.CDLL(None).exit(3), "exit status 3"),
                ("stack", faulthandler._sigsegv, "signal 11 (segmentation fault)"),
            )
        ),
    ],
)
def test_what_ends_its_process_fails_and_its_neighbours_are_judged(act, ending, tmp_path, monkeypatch):
    monkeypatch.setattr(crashes, "MOST_TRIALS", 3)
    result, neighbour = judged(act, tmp_path, case=LONG)
    assert (result.verdict, result.reason) == (FAIL, f"forward ends the process: {ending}")
    assert result.replay.endswith(f"--impl-from=mine.py --case '{result.smallest}'")
    assert "3 of 3 repeats, each in a fresh process, end in the same way" in result.message
    assert neighbour.verdict == PASS


def test_drawn_cases_shrink_and_the_replay_ends_in_the_same_way(tmp_path, patient):
    impl, alone = hostile(os.abort, above=2), []
    with isolated(tmp_path, impl) as judging:
        ended_by = judging.ended_by
        judging.ended_by = lambda *of: alone.append(of) or ended_by(*of)
        result, steps = judging.law(LAW, impl), len(alone)
        other = judging.law(OTHER, impl)
    assert other.reason == result.reason and other.smallest.startswith("seqlen_q=3 seqlen_k=3 headdim=16 dtype=float32")
    assert len(alone) - steps == 1 + REPEATS < steps  # the case is not shrunk again
    assert "end in the same way; its sizes were shrunk with out_matches_the_definition\n" in other.message
    assert result.smallest.startswith("seqlen_q=3 seqlen_k=3 headdim=16 dtype=float32")
    headings = re.findall(r"^(?! )(.+)$", result.message, re.MULTILINE)
    assert headings == ["forward ends the process: signal 6 (abort)", "Rule", "Observed", "Replay"]
    assert "\nRule\n  No kernel may end the process" in result.message  # not what this law says of results
    assert re.search(r"at .*test_core.py:\d+|at .*judging.py:\d+, in forward", result.message)
    case = parse_case(result.replay.split("--case '")[1].rstrip("'"))
    with isolated(tmp_path, impl, case=case) as judging:
        again = judging.law(LAW, impl)
    assert (again.verdict, again.reason, again.smallest) == (result.verdict, result.reason, result.smallest)


def test_a_given_case_that_ends_the_process_is_not_shrunk(tmp_path):
    result, _ = judged(os.abort, tmp_path, case=LONG)
    assert (result.verdict, result.smallest) == (FAIL, str(LONG)) and "3 of 3 repeats" in result.message


def test_a_case_that_is_right_in_a_fresh_process_is_told(tmp_path):
    """The first calls of a process are right, so the replay would be right too; later calls are
    wrong.

    Nothing is added for an implementation that is always wrong.
    """
    calls = []

    def forward(q, k, v, always=False):
        calls.append(q.shape)
        return good.forward(q, k, v) + (0.5 if always or len(calls) > 20 else 0.0)

    late = replace(good.IMPL, name="late", forward=forward)
    wrong = replace(good.IMPL, name="wrong", forward=lambda q, k, v: forward(q, k, v, always=True))
    with isolated(tmp_path, late, wrong) as judging:
        first, plain = judging.law(LAW, late), judging.law(LAW, wrong)
    assert first.verdict == plain.verdict == FAIL
    assert f"\n  {crashes.RIGHT_ALONE}\n\nReplay" in first.message
    assert crashes.RIGHT_ALONE not in plain.message


def test_repeats_that_take_long_are_fewer(tmp_path, monkeypatch):
    monkeypatch.setattr(crashes, "MOST_SECONDS", 0.0)
    result, _ = judged(os.abort, tmp_path, case=LONG)
    assert "1 of 1 repeats, each in a fresh process, end in the same way\n" in result.message


def test_what_kills_its_parent_does_not_end_the_run(tmp_path):
    """The run continues after such a first call and after such a repeat."""

    def kill():
        os.kill(os.getppid(), signal.SIGABRT)
        time.sleep(1000)  # the process dies with its parent

    result, neighbour = judged(kill, tmp_path, case=LONG)
    assert result.verdict == FAIL and "3 of 3 repeats" in result.message and neighbour.verdict == PASS


def test_a_process_that_does_not_come_up_is_started_once_more(tmp_path, monkeypatch):
    """The GPU may be full for a moment.

    forget_troubles, which a sweep calls, also allows another try.
    """
    monkeypatch.setattr(module, "PAUSE", 0.01)
    starts = tmp_path / "starts"
    starts.write_text("")
    with isolated(tmp_path, good.IMPL) as judging:
        start = judging.start

        def full_at_first(device):
            starts.write_text(starts.read_text() + ".")
            if len(starts.read_text()) < 4:
                raise RuntimeError("CUDA error: out of memory")
            return start(device)

        judging.start = full_at_first
        first, second = judging.law(LAW, good.IMPL), judging.law(LAW, good.IMPL)
        attempts = len(starts.read_text())
        judging.forget_troubles()
        third = judging.law(LAW, good.IMPL)
    reason = "no judging process comes up: exit status 1; RuntimeError: CUDA error: out of memory"
    assert first.reason == second.reason == reason and attempts == 2 and third.verdict == PASS


@pytest.mark.parametrize("why", [Reason.GPU_MEMORY, Reason.RESOURCES])
def test_a_process_without_memory_on_the_gpu_leaves_its_law_to_that_reason(tmp_path, why):
    """The next law starts a process again: other programs may have given memory back."""
    with isolated(tmp_path, good.IMPL) as judging:
        start = judging.start

        def full(device):
            raise OutOfMemory("out of memory when the process first used the GPU", why)

        judging.start = full
        contract, law = judging.contract(good.IMPL), judging.law(LAW, good.IMPL)
        judging.start = start
        assert judging.law(LAW, good.IMPL).verdict == PASS
    assert [(result.verdict, result.why) for result in (contract, law)] == [(UNKNOWN, why)] * 2
    assert "out of memory when the process first used the GPU; it had launched no case" in law.reason


def test_what_does_not_come_up_stops_no_other(tmp_path, monkeypatch):
    """The emulator may lack a part on a machine whose GPU works."""
    monkeypatch.setattr(module, "PAUSE", 0.01)
    other = replace(good.IMPL, name="other")
    with isolated(tmp_path, other, good.IMPL) as judging:
        start, judging.start = judging.start, lambda device: 1 / 0
        first, judging.start = judging.law(LAW, other), start
        assert (first.verdict, judging.law(LAW, good.IMPL).verdict) == (UNKNOWN, PASS)


@pytest.mark.thorough
def test_a_smaller_case_that_does_not_return_leaves_time_for_others(tmp_path, monkeypatch):
    def forward(q, k, v):
        if q.shape[1] > 64:
            os.abort()
        time.sleep(1000 if q.shape[1] > 40 else 0)
        return good.forward(q, k, v)

    monkeypatch.setattr(crashes, "MOST_SECONDS", 12.0)
    impl, case = replace(good.IMPL, name="hostile", forward=forward), LONG.but(seqlen_q=90, seqlen_k=90)
    with isolated(tmp_path, impl) as judging:
        ended_by = partial(judging.ended_by, LAW, impl)
        result = crashes.result(judging.judge.judgement(LAW, impl), ended_by(case, 60.0), ended_by, 60.0)
    assert parse_case(result.smallest).seqlen_q in range(65, 90)


def test_a_crash_that_does_not_come_back_says_so(tmp_path):
    marker = tmp_path / "once"

    def once():
        if not marker.exists():
            marker.touch()
            os.abort()

    result, _ = judged(once, tmp_path, case=LONG)
    assert (
        result.verdict == FAIL
        and "0 of 3 repeats, each in a fresh process, end in the same way: the outcome depends" in result.message
    )


@pytest.mark.parametrize("number", (signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)))
def test_a_process_that_somebody_ends_is_unknown(number, tmp_path):
    result, neighbour = judged(lambda: os.kill(os.getpid(), number), tmp_path, case=LONG)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.WORKER_DIED)
    assert result.reason.startswith(f"the process died in forward: signal {number} (")
    assert str(LONG) in result.reason and result.replay
    assert neighbour.verdict == PASS


def test_what_it_prints_before_it_ends_is_shown(tmp_path):
    def act():
        print("\n".join(f"line {n} of C" for n in range(100_000)))
        sys.stdout.flush()
        os.abort()

    result, _ = judged(act, tmp_path, case=LONG)
    assert "it printed: line 99999 of C" in result.message and "line 99900 of C" not in result.message


@pytest.mark.parametrize("act", [lambda: os.killpg(os.getpgid(os.getppid()), 9), lambda: os.kill(os.getppid(), 9)])
def test_the_parent_that_it_may_kill_is_not_pytest(act, tmp_path):
    result, neighbour = judged(act, tmp_path, case=LONG)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.WORKER_DIED)
    assert neighbour.verdict == PASS


@pytest.mark.parametrize(
    "raised",
    [
        KeyboardInterrupt("no"),
        pytest.param(GeneratorExit("no"), marks=pytest.mark.thorough),
        pytest.param(SystemExit("no"), marks=pytest.mark.thorough),
        pytest.skip.Exception("no"),
    ],
)
def test_whatever_it_raises_is_a_failure(raised, tmp_path):
    def act():
        raise raised

    result, neighbour = judged(act, tmp_path, case=LONG, goes_on=False)
    assert (result.verdict, result.reason) == (FAIL, f"forward raises {type(raised).__name__}: no")
    assert neighbour.verdict == PASS


def test_a_process_that_it_forks_does_not_judge(tmp_path):
    pids = tmp_path / "told"
    impl = hostile(os.fork, above=0)

    def law(trial):
        trial.run()
        with open(pids, "a") as file:
            file.write(f"{os.getpid()}\n")

    with isolated(tmp_path, impl, try_contract=False) as judging:
        result = judging.law(replace(LAW, function=law), impl)
    assert result.verdict == PASS and len(set(pids.read_text().split())) == 1


def wait_until_ended(judging):
    """Wait for the end of the judging process."""
    stop = time.monotonic() + 60
    while judging._process.alive():
        assert time.monotonic() < stop
        time.sleep(0.01)


def later():
    """Abort in a thread, after the call has returned."""
    threading.Timer(0.2, os.abort).start()


def test_a_thread_that_ends_the_process_later_costs_no_neighbour_its_verdict(tmp_path):
    """The two implementations share a process, as the implementations of this repository do."""
    impl = hostile(later)
    with isolated(tmp_path, impl, good.IMPL, case=LONG, plugins=False) as judging:
        judging.law(LAW, impl)
        wait_until_ended(judging)
        neighbour = judging.law(LAW, good.IMPL)
    assert neighbour.verdict == PASS
    assert judging.remarks == [f"after its verdict on {LAW.test_id('hostile')} the process ended: signal 6 (abort)"]


def test_a_thread_that_ends_the_process_later_is_found(tmp_path):
    impl = hostile(later)
    with isolated(tmp_path, impl, good.IMPL, case=LONG) as judging:
        judging.law(LAW, impl)
        wait_until_ended(judging)
        result = judging.law(OTHER, impl)
        neighbour = judging.law(LAW, good.IMPL)
    assert result.verdict == UNKNOWN
    assert result.reason.startswith(
        f"after its verdict on {LAW.test_id('hostile')} the process ended: signal 6 (abort)"
    )
    assert neighbour.verdict == PASS


# --- the parent -------------------------------------------------------------------------------


def children() -> set[str]:
    """Return the children of this process, including dead ones that were not waited for."""
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


def test_ctrl_c_ends_the_judging_process_at_once(tmp_path):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore it
    impl, before = hostile(endless), descriptors()
    with isolated(tmp_path, impl, case=LONG) as judging:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            judging.law(LAW, impl)
        assert judging._process.pid == 0
    signal.signal(signal.SIGINT, handler)
    assert descriptors() <= before  # one of another test may have been closed meanwhile


@pytest.mark.thorough
def test_processes_and_files_do_not_pile_up(tmp_path):
    before, processes = descriptors(), children()
    judged(os.abort, tmp_path, case=LONG)
    assert descriptors() == before and children() == processes


def test_an_exception_of_the_suite_is_unknown_and_names_its_line(tmp_path):
    def broken(trial):
        return {}["nothing"]

    with isolated(tmp_path, good.IMPL, case=LONG) as judging:
        result = judging.law(replace(LAW, function=broken), good.IMPL)
        neighbour = judging.law(LAW, good.IMPL)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.SUITE)
    assert re.fullmatch(
        r"the suite raised KeyError: 'nothing' \(tests/runner/isolation/test_core.py:\d+\)", result.reason
    )
    assert neighbour.verdict == PASS
