"""Calls one implementation in a separate process: under a tool that watches a whole process, or to
learn what it gives without earlier calls.

python -m flash_attest.runner.alone JUDGE DEVICE IMPL WHAT CASES [OPTION...]

WHAT is "call" or "judge": whether results are also compared with the definition. CASES are
separated by semicolons and called one after another. The implementation is found as in the run that
starts this process, with the options of that run: a file of --impl-from, a plug-in, one of ours, or
a test under @attention_laws in another repository. The exit status is 0 if all calls returned, and
were right if they are judged; otherwise the last line printed gives the reason. JUDGE is the
process number of the run. This process ends when the run ends, because the tool between them may
not notice.
"""

from __future__ import annotations

import os
import select
import sys
import threading

from flash_attest.places import ROOMS
from flash_attest.properties.judging.origin import DECORATED

SUITE = "flash_attest.runner.plugin.suite"
CALL, JUDGE = "call", "judge"
NOT_CALLED = 3  # exit status
SEPARATOR = ";"


def command(device: str, name: str, cases: list[str], options: list[str], *, judged: bool = False) -> list[str]:
    """Return the command line that starts such a process."""
    what = JUDGE if judged else CALL
    return [sys.executable, "-m", __name__, str(os.getpid()), device, name, what, SEPARATOR.join(cases), *options]


def main(arguments: list[str]) -> int:
    """Call the implementation on every case. Returns the exit status."""
    judge, device, name, what, cases, *options = arguments
    end_with(int(judge))
    import pytest  # imported here, because the caller may judge without pytest

    from flash_attest.runner.plugin.calls import Calls

    calls = Calls(device, name, cases.split(SEPARATOR), judged=what == JUDGE)
    common = ["-p", "no:cacheprovider", "-q", "-n", "0"]
    if options[:1] == [DECORATED]:
        pytest.main([*options[1:], "--collect-only", *common], plugins=[calls])
    else:
        options += ["--impl", name, "--device", device, "--no-isolation", *common]
        pytest.main([str(ROOMS), "--rootdir", str(ROOMS), "-p", SUITE, *options], plugins=[calls])
    if calls.problem:
        print(calls.problem.splitlines()[0])
    return NOT_CALLED if calls.problem else 0


def end_with(judge: int) -> None:
    """End this process when the process with the number `judge` ends."""
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
