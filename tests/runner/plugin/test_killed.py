"""Runs that are killed or interrupted at any moment, until they come to their end with --resume.

They lose no verdict, and give the same verdicts as a run that nothing disturbs.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flash_attest.runner.plugin.folder import IN_USE
from flash_attest.runner.plugin.resume import ResumeError, earlier
from tests.places import PLUGINS, ROOT
from tests.runs import environment, options

pytestmark = pytest.mark.thorough  # each moment takes two runs or more

CHOSEN = (
    *("--impl-from", PLUGINS / "slow.py", "--impl-from", PLUGINS / "one_key_short.py"),
    *("properties/test_contract.py", "properties/test_forward.py", "--hypothesis-profile", "smoke"),
)
MOMENTS = 20  # for each signal
SAME = ("verdict", "reason", "why", "smallest", "findings", "tried", "cases", "worst_z")
# A law whose failure has a known cause is not searched further, and a run that goes on does not
# know the causes of the one before. So the last three fields of a failure may differ.
OF_FAILURES = SAME[:-3]


# Forks a process for each run, after the imports that would take most of its time.
FORKS = """
import json, os, sys
import torch
from flash_attest.properties.law import laws
from tests import warm
laws()
print("ready", flush=True)
for line in sys.stdin:
    if (fork := os.fork()) == 0:
        os.setsid()
        sys.exit(warm._run(**json.loads(line)))
    print(fork, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]), flush=True)
"""


class Run:
    """A run in a process group of its own, as a shell starts it."""

    def __init__(self, forks: subprocess.Popen, report: Path, *arguments: object):
        self.forks, self.report, self.output = forks, report, report.with_suffix(".printed")
        self.output.unlink(missing_ok=True)
        one = {"output": str(self.output), "status": str(report.with_suffix(".status"))}
        one["arguments"] = options(*CHOSEN, *arguments, report=report)
        forks.stdin.write(json.dumps({"environment": environment(), "runs": [one]}) + "\n")
        forks.stdin.flush()
        self.pid = int(forks.stdout.readline())

    def ends_within(self, seconds: float) -> bool:
        return bool(select.select([self.forks.stdout], [], [], seconds)[0])

    def judges(self) -> None:
        """Wait until the run holds its report, or has ended: before that it can lose nothing."""
        while not (self.report / IN_USE).exists() and not self.ends_within(0.01):
            pass

    def status(self) -> int:
        assert self.ends_within(300), "the run does not end"
        return int(self.forks.stdout.readline())

    @property
    def printed(self) -> str:
        return self.output.read_text(errors="replace")


@pytest.fixture(scope="module")
def forks():
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True, bufsize=1,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    yield process
    process.communicate()


def decided(report: Path) -> dict[str, dict]:
    """Return the verdicts so far, without unknown ones, which are judged again."""
    try:
        there = earlier(report)
    except ResumeError:
        return {}
    assert not [words for words in there.damaged if not words.endswith("is cut")], there.damaged
    entries = [entry for entry in there.record["results"] if entry["verdict"] != "unknown"]
    return {f"{entry['law']}[{entry['impl']}]": entry for entry in entries}


def compared(entries: dict[str, dict]) -> dict[str, tuple]:
    return {
        name: tuple(entry[field] for field in (OF_FAILURES if entry["verdict"] == "fail" else SAME))
        for name, entry in entries.items()
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, forks):
    """The exit status and verdicts of a run that nothing disturbs, and for how long it judges."""
    report = tmp_path_factory.mktemp("undisturbed")
    run = Run(forks, report)
    run.judges()
    began = time.monotonic()
    status = run.status()
    assert status in (0, 1), run.printed
    return status, compared(decided(report)), time.monotonic() - began


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_a_run_that_is_stopped_loses_nothing(forks, undisturbed, tmp_path, name, moment):
    whole, verdicts, seconds = undisturbed
    draw, report = random.Random(f"{name} {moment}"), tmp_path / "report"
    before: dict[str, dict] = {}
    for stops in (True, False):
        resumes = ("--resume",) if (report / "results.json").exists() else ()
        run = Run(forks, report, *resumes)
        if stops:
            run.judges()
        if stops and not run.ends_within(draw.uniform(0, seconds)):
            # Ctrl-C reaches every process of the group, kill -9 only the one that is named.
            (os.killpg if name == "SIGINT" else os.kill)(run.pid, signal.Signals[name])
        status, there = run.status(), decided(report)
        assert compared(before).items() <= compared(there).items(), run.printed
        if resumes:
            assert {law for law, entry in there.items() if entry["before"]} == before.keys(), run.printed
        print(f"{name} {moment}: status {status}, {len(there)} of {len(verdicts)} decided")
        before = there
    assert status == whole and "INTERNALERROR" not in run.printed, run.printed
    assert compared(there) == verdicts
