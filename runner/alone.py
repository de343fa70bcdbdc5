"""Calls of one implementation in a process of their own, for a tool that watches the whole process.

python -m flash_attest.runner.alone JUDGE DEVICE IMPL CASES [OPTION...]

CASES are called one after another; a semicolon is between two. The implementation is found as in any run, by pytest and
conftest.py, with the options of the run that asks: a file of --impl-from, a plug-in, or one of ours. The exit status is 0 if
all calls returned; otherwise the reason is the last line printed. JUDGE is the number of the process that waits for it: this
one ends when that one does, as the tool between the two may not notice.
"""

from __future__ import annotations

import os
import select
import sys
import threading

import pytest

from flash_attest.places import ROOMS

SUITE = "flash_attest.runner.plugin.suite"
NOT_CALLED = 3  # exit status
BETWEEN = ";"


class Calls:
    """A plug-in of pytest that calls an implementation once for each case, in place of a run."""

    def __init__(self, device: str, name: str, cases: list[str]):
        self.device, self.name, self.cases = device, name, cases
        self.problem = f"{name} was not called"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """After conftest.py, which has the emulator take kernels before Triton and Numba are imported."""
        from flash_attest.properties.cases.case import parse_case  # imports torch, which conftest.py leaves for later
        from flash_attest.properties.failures import LawBroken, Undecided
        from flash_attest.properties.trial import Trial

        impl = next(entry.impl for entry in session.config.attest.entries if entry.name == self.name)
        try:
            for case in self.cases:
                trial = Trial(impl, parse_case(case), self.device, judges_state=False)
                trial.run(backward=trial.backward)
            self.problem = ""
        except (LawBroken, Undecided) as error:
            self.problem = str(error)
        pytest.exit("called", returncode=0)


def command(device: str, name: str, cases: list[str], options: list[str]) -> list[str]:
    """The command of such a process."""
    return [sys.executable, "-m", __name__, str(os.getpid()), device, name, BETWEEN.join(cases), *options]


def main(arguments: list[str]) -> int:
    judge, device, name, cases, *options = arguments
    end_with(int(judge))
    calls = Calls(device, name, cases.split(BETWEEN))
    # --no-isolation: the file has been imported by the process that asks, so it need not be tried in another one.
    options += ["--impl", name, "--device", device, "--no-isolation", "-p", "no:cacheprovider", "-q", "-n", "0"]
    pytest.main([str(ROOMS), "--rootdir", str(ROOMS), "-p", SUITE, *options], plugins=[calls])
    if calls.problem:
        print(calls.problem.splitlines()[0])
    return NOT_CALLED if calls.problem else 0


def end_with(judge: int) -> None:
    """End this process when another one ends."""
    if not hasattr(os, "pidfd_open"):
        return
    try:
        end = os.pidfd_open(judge)
    except ProcessLookupError:
        os._exit(1)

    def wait() -> None:
        select.select([end], [], [])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
