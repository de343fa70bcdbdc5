"""Workers of pytest-xdist that are forks of the process in warm.py.

A new process would import torch, the laws and pytest once more, which takes four seconds.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys

from execnet import gateway_io

from flash_attest.properties.progress import NOW
from tests import forked

_spares: list[Spare] = []


def fork(arguments: list[str]) -> None:
    """Fork a worker for each that a run with these arguments starts with.

    Call it before the run, so that the workers know nothing of it. A worker that the run starts
    later, because another one has died, is a new process.
    """
    _spares.clear()
    number = dict(itertools.pairwise(arguments)).get("-n", "0")
    for _ in range(int(number) if number.isdigit() else 0):
        _spares.append(Spare())
    gateway_io.Popen2IOMaster = _Gateway


class Spare:
    """A process that waits to become a worker. It has what execnet uses of subprocess.Popen."""

    def __init__(self):
        theirs, mine = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for other in _spares:
                other.stdin.close()
                other.stdout.close()
            os.dup2(theirs[0], 0)
            os.dup2(mine[1], 1)
            for descriptor in (*theirs, *mine):
                os.close(descriptor)
            _become_a_worker()
        os.close(theirs[0])
        os.close(mine[1])
        self.stdin, self.stdout = os.fdopen(theirs[1], "wb"), os.fdopen(mine[0], "rb")

    def begin(self) -> None:
        """Give it the environment that a new process would have."""
        self.stdin.write(json.dumps([dict(os.environ), os.getcwd()]).encode() + b"\n")
        self.stdin.flush()

    def wait(self) -> int:
        """Wait for its end. Returns its status."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        """Kill it."""
        os.kill(self.pid, signal.SIGKILL)


def _become_a_worker() -> None:
    """Do what `python -u -c` does with the line of execnet, and exit."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if not (line := sys.stdin.readline()):  # the run has ended, or needed fewer workers
        os._exit(0)
    environment, folder = json.loads(line)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["-c"]
    NOW.__init__()  # no other worker shall write to its memory
    exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
    forked.end(0)


class _Gateway(gateway_io.Popen2IOMaster):
    """The connection to a worker, which is a spare one while there is one."""

    def __init__(self, args: list[str], execmodel: object):
        if not _spares:
            super().__init__(args, execmodel)
            return
        self.popen = _spares.pop(0)
        self.popen.begin()
        gateway_io.Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, execmodel=execmodel)
