"""Calls of one implementation in a process of their own, for a tool that watches the whole process.

python -m flash_attest.runner.alone JUDGE DEVICE IMPL CASES [OPTION...]

CASES are called one after another; a semicolon is between two. The implementation is found as in the run that asks, with its
options: a file of --impl-from, a plug-in, one of ours, or a test under @attention_laws in somebody's repository. The exit
status is 0 if all calls returned; otherwise the reason is the last line printed. JUDGE is the number of the process that
waits for it: this one ends when that one does, as the tool between the two may not notice.
"""

from __future__ import annotations

import os
import select
import sys
import threading

from flash_attest.places import ROOMS
from flash_attest.properties.judging.origin import DECORATED

SUITE = "flash_attest.runner.plugin.suite"
NOT_CALLED = 3  # exit status
BETWEEN = ";"


def command(device: str, name: str, cases: list[str], options: list[str]) -> list[str]:
    """The command of such a process."""
    return [sys.executable, "-m", __name__, str(os.getpid()), device, name, BETWEEN.join(cases), *options]


def main(arguments: list[str]) -> int:
    judge, device, name, cases, *options = arguments
    end_with(int(judge))
    import pytest  # here: whoever asks for such a process may judge without pytest

    from flash_attest.runner.plugin.calls import Calls

    calls = Calls(device, name, cases.split(BETWEEN))
    common = ["-p", "no:cacheprovider", "-q", "-n", "0"]
    if options[:1] == [DECORATED]:
        pytest.main([*options[1:], "--collect-only", *common], plugins=[calls])
    else:
        # --no-isolation: the file has been imported by the process that asks, so it need not be tried in another one.
        options += ["--impl", name, "--device", device, "--no-isolation", *common]
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
