"""SIGINT and SIGTERM at any moment end a run with pytest's status 2, and leave whole files."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from flash_attest.runner.plugin.interrupts import Interrupts
from tests import warm
from tests.places import PLUGINS, ROOT
from tests.runs import environment, options

PLUGIN = "tests.plugins.interrupting"
ARGUMENTS = (
    "-p",
    PLUGIN,
    f"--impl-from={PLUGINS / 'interrupting.py'}",
    "-k",
    "contract_is_kept or out_matches or winning",
)
MOMENTS = ("import", "collection", "test", "call", "shrinking", "caught", "writing", "twice", "summary")
REPEATS = ("import", "test", "call", "summary")
LONGEST = 300.0  # seconds, on a busy machine


def whole(report: Path) -> dict | None:
    """Check that the files of a report are whole, and return results.json, if there is one."""
    if not report.exists():
        return None
    names = {file.name for file in report.iterdir()}
    assert not {name for name in names if name.endswith(".part") or name == "in-use.txt"}, names
    if "results.json" not in names:
        return None
    results = json.loads((report / "results.json").read_text())
    assert results["environment"]["state"] in ("interrupted", "complete")
    assert results["environment"]["decided"] == len(results["results"])
    assert (report / "index.html").read_text().rstrip().endswith("</html>")
    assert (report / "report.md").exists() and "since-results.jsonl" not in names
    return results


def check_output(printed: str) -> None:
    assert "INTERNALERROR" not in printed and "Traceback" not in printed, printed[-3000:]


@pytest.mark.parametrize(
    "moment",
    [
        *(pytest.param(each, marks=pytest.mark.thorough if each in REPEATS else ()) for each in MOMENTS),
        pytest.param(f"call {int(signal.SIGTERM)}", id="terminated"),
    ],
)
def test_the_status_is_2_and_the_files_are_whole(moment, tmp_path):
    report, output = tmp_path / "report", tmp_path / "output"
    request = {
        "arguments": options("-n", "0", "--hypothesis-profile", "smoke", *ARGUMENTS, report=report),
        "output": str(output),
        "status": str(tmp_path / "status"),
    }
    began = time.monotonic()
    status = warm.ask(environment() | {"INTERRUPT": moment}, [request])
    printed = output.read_text()
    check_output(printed)
    results = whole(report)
    assert time.monotonic() - began < LONGEST
    if moment == "summary":  # the run has ended
        assert results["environment"]["state"] == "complete"
    assert status == 2, printed[-2000:]
    if moment in ("writing", "twice"):  # the verdict that was written then is there
        assert len(results["results"]) == 1


EXEC = """\
import os, signal, sys
from flash_attest.runner.plugin.interrupts import Interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
{install}
try:
    exec("os.kill(os.getpid(), signal.SIGINT)")
except KeyboardInterrupt as error:
    print(type(error).__name__)
    sys.exit(2)
"""


@pytest.mark.parametrize(("install", "status"), [("Interrupts(None).install()", 2), ("", -signal.SIGINT)])
def test_an_interrupt_in_exec_does_not_end_python_by_the_signal(install, status, tmp_path):
    """Python does so for KeyboardInterrupt itself, even if it is caught: a dataclass uses exec."""
    (tmp_path / "interrupted_in_exec.py").write_text(EXEC.format(install=install))
    command, path = [sys.executable, "-m", "interrupted_in_exec"], f"{ROOT}:{tmp_path}"
    run = subprocess.run(
        command, env=environment() | {"PYTHONPATH": path}, capture_output=True, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (status, "KeyboardInterrupt\n", "")


MASK = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"


def test_workers_start_without_the_signal_and_the_run_ends_after_that():
    """Python prints a traceback for a signal that comes while it starts."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts = Interrupts(SimpleNamespace())
    interrupts.install()
    try:
        starting = interrupts.pytest_sessionstart()
        next(starting)
        os.kill(os.getpid(), signal.SIGINT)
        worker = subprocess.run([sys.executable, "-c", MASK], capture_output=True, text=True, check=True)
        with pytest.raises(StopIteration):
            starting.send(None)
        assert worker.stdout == "True\n" and signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        with pytest.raises(KeyboardInterrupt):
            interrupts.pytest_collection()
    finally:
        interrupts.pytest_unconfigure()
        signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("started", [False, True])
def test_a_worker_ends_at_once_until_its_session_has_started(started):
    fork = os.fork()
    if fork == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupts = Interrupts(SimpleNamespace(workerinput={}))
        interrupts.install()
        try:
            if started:
                next(interrupts.pytest_sessionstart())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == (3 if started else 2)


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_random_moments(workers, number, tmp_path):
    """The command has the status 130, and --resume goes on from any of them."""
    generator, report = random.Random(f"{workers} {number}"), tmp_path / "report"
    arguments = ["check", str(PLUGINS / "good.py"), "--profile", "smoke", "-n", str(workers), "--report", str(report)]
    arguments += ["-k", "contract_is_kept or out_matches or winning"]
    took = measured(arguments)
    for _ in range(10):
        command = [sys.executable, "-m", "flash_attest", *arguments]
        command += ["--resume"] if (report / "results.json").exists() else []
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        time.sleep(generator.uniform(0.3, took))
        process.send_signal(number)
        printed, _ = process.communicate(timeout=LONGEST)
        # Before it handles the signal, and at its very end, Python itself dies of it.
        assert process.returncode in (0, 130, -number), printed[-2000:]
        check_output(printed)
        whole(report)


def measured(arguments: list[str]) -> float:
    """Return the seconds of a whole run."""
    began = time.monotonic()
    command = [sys.executable, "-m", "flash_attest", *arguments]
    subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began
