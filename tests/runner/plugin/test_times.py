"""The times of a run: the clock, the tables of results.json, the order of the laws."""

import json
import os
import time
from types import SimpleNamespace

import pytest

from flash_attest.command import times as command
from flash_attest.emulator import build_cache
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS, Result
from flash_attest.properties.law import laws
from flash_attest.properties.machine.clock import Clock, Work
from flash_attest.runner.plugin import process, times
from flash_attest.runner.plugin.order import by_implementation
from tests.trials import implementation

# --- the clock ------------------------------------------------------------------------------------


@pytest.fixture
def ticks(monkeypatch):
    """Let n seconds pass: ticks(n)."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def test_an_inner_kind_is_not_counted_twice(ticks):
    clock = Clock()
    with clock.counts(Work.DRAWING):
        ticks(1)
        with clock.counts(Work.LAW):
            ticks(2)
            with clock.counts(Work.ORACLE):
                ticks(4)
        ticks(8)
    ticks(16)  # outside of all blocks
    assert clock.seconds == {Work.DRAWING: 9, Work.LAW: 2, Work.ORACLE: 4}


def test_an_exception_ends_its_kind(ticks):
    clock = Clock()
    with clock.counts(Work.LAW):
        with pytest.raises(ValueError), clock.counts(Work.BUDGET):
            ticks(1)
            raise ValueError
        ticks(2)
    assert clock.seconds == {Work.BUDGET: 1, Work.LAW: 2}


def test_what_a_compiler_took_is_not_running(ticks):
    clock = Clock()
    with clock.counts(Work.RUNNING):
        ticks(1)
        with build_cache.counted():
            ticks(5)
            with build_cache.counted():  # the library of a file is built while its headers are read
                ticks(2)
    # Earlier compilations of this process add a fraction, which brings a rounding error.
    assert clock.seconds == pytest.approx({Work.RUNNING: 1, Work.COMPILING: 7})


def test_everything_after_a_failure_is_shrinking(ticks):
    clock = Clock()
    with clock.counts(Work.LAW):
        ticks(1)
        clock.from_now_on(Work.SHRINKING)
        with clock.counts(Work.RUNNING):
            ticks(2)
    with clock.counts(Work.DRAWING):
        ticks(4)
    assert {work: s for work, s in clock.seconds.items() if s} == {Work.LAW: 1, Work.SHRINKING: 6}


def test_a_law_says_where_its_seconds_went():
    result = judge(laws()["test_out_matches_the_definition"], implementation(lse="natural"), Plan(examples=4))
    assert {"running", "oracle", "budget", "drawing", "inputs"} <= set(result.seconds_of)
    assert sum(result.seconds_of.values()) == pytest.approx(result.seconds, rel=0.1, abs=0.05)


# --- the table ------------------------------------------------------------------------------------


def result(impl, law, seconds, **of):
    return Result(impl, "test_laws", law, PASS, seconds=seconds, seconds_of=of).as_dict()


RESULTS = [result("a", "x", 5, running=3, oracle=1), result("a", "y", 1, running=1), result("b", "x", 10, running=9.5)]
ENVIRONMENT = {"seconds": 10.0, "workers": 2, "device_name": "a processor", "versions": {}}


def test_lines_add_up_by_implementation_and_by_law_the_longest_first():
    assert [(line.name, line.whole) for line in times.lines_by(RESULTS, "impl")] == [("b", 10), ("a", 6)]
    assert [(line.name, line.whole) for line in times.lines_by(RESULTS, "law")] == [("x", 15), ("y", 1)]
    assert times.lines_by(RESULTS, "impl")[1].seconds == {"running": 4, "oracle": 1, "other": 1}


def test_what_no_law_is_charged_with_is_pytest():
    assert times.total(RESULTS, ENVIRONMENT).seconds["pytest and xdist"] == 4
    assert "pytest and xdist" not in times.total(RESULTS, {}).seconds  # the run has not ended
    assert times.sentence(RESULTS, ENVIRONMENT) == (
        "of 20 worker seconds: running 68%, pytest and xdist 20%, other 8%, oracle 5%"
    )
    assert times.sentence([], {}) == "no time was spent"


def test_the_command_reads_a_report_folder(tmp_path, capsys):
    (tmp_path / "results.json").write_text(json.dumps({"results": RESULTS, "environment": ENVIRONMENT}))
    assert command.run([str(tmp_path), "--slowest", "1"]) == 0
    output = capsys.readouterr().out
    assert "10.0 s on 2 workers, a processor" in output
    assert [line.split()[:2] for line in output.splitlines() if line.startswith(("a ", "b ", "x ", "y "))] == [
        ["b", "10.0"], ["a", "6.0"], ["x", "15.0"],
    ]  # fmt: skip


@pytest.mark.parametrize("text", [None, "{", "[]", '{"results": [{}], "environment": {}}'])
def test_what_is_no_report_is_named(tmp_path, capsys, text):
    if text is not None:
        (tmp_path / "results.json").write_text(text)
    with pytest.raises(SystemExit):
        command.run([str(tmp_path)])
    words = "has no results.json" if text is None else "should be the results.json of a run"
    assert words in capsys.readouterr().err


# --- order, compilers -----------------------------------------------------------------------------


def test_laws_of_one_implementation_follow_each_other():
    """Laws that may end the process come last, after laws that are always judged on the CPU."""

    def item(law, impl=None):
        function = SimpleNamespace(
            law=SimpleNamespace(last=law == "last", device="cpu" if law == "cpu" else None, chapter=law)
        )
        judged = {} if impl is None else {"callspec": SimpleNamespace(id=impl)}
        return SimpleNamespace(law=law, fixturenames=("judge",) if impl else (), function=function, **judged)

    items = [
        item("last", "a"), item("x", "b"), item("cpu", "a"), item("x", "a"), item("other"), item("y", "b"), item("y", "a"),
    ]  # fmt: skip
    ordered = by_implementation(items, ["a", "b"])
    assert [(i.law, getattr(i, "callspec", None) and i.callspec.id) for i in ordered] == [
        ("other", None), ("x", "a"), ("y", "a"), ("cpu", "a"), ("last", "a"), ("x", "b"), ("y", "b"),
    ]  # fmt: skip


def test_a_triton_kernel_is_compiled_under_a_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path))
    compiler = SimpleNamespace(compile=lambda src, target=None, options=None: (src, options))
    monkeypatch.setitem(process.sys.modules, "triton.compiler", compiler)
    process.compile_each_triton_kernel_once()
    once = compiler.compile
    process.compile_each_triton_kernel_once()
    assert compiler.compile is once
    source = SimpleNamespace(hash=lambda: "a")
    assert compiler.compile(source, options={"num_warps": 4}) == (source, {"num_warps": 4})
    assert len(list(tmp_path.glob("triton-*.lock"))) == 1
    assert compiler.compile("no source", options=1) == ("no source", 1)  # another version of Triton


@pytest.fixture
def unset(monkeypatch):
    """Removes all variables that name the folder of Triton's kernels."""
    monkeypatch.delenv("TRITON_HOME", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", "")  # so that monkeypatch restores it
    monkeypatch.delenv("TRITON_CACHE_DIR")


@pytest.mark.parametrize("home", ["", "elsewhere"])
def test_triton_keeps_its_kernels_where_it_would_by_itself(unset, home, tmp_path, monkeypatch):
    """TorchInductor cannot change the folder later."""
    knobs = pytest.importorskip("triton.knobs")  # reads the user's home when it is imported
    monkeypatch.setattr(process.os, "access", lambda path, mode: True)
    if home:
        monkeypatch.setenv("TRITON_HOME", str(tmp_path / home))
    usual = knobs.cache.dir
    process.keep_triton_in_one_folder()
    assert os.environ["TRITON_CACHE_DIR"] == usual


def test_triton_keeps_its_kernels_in_our_cache_if_the_home_is_read_only(unset, tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "ours"))
    monkeypatch.setattr(process.os, "access", lambda path, mode: home not in (path, *path.parents))
    process.keep_triton_in_one_folder()
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "ours" / ".triton" / "cache")


def test_where_the_user_has_triton_keep_its_kernels_it_does(monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/chosen")
    process.keep_triton_in_one_folder()
    assert os.environ["TRITON_CACHE_DIR"] == "/chosen"
