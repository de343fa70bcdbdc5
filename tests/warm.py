"""A process that has imported torch and the laws, which takes seconds, and forks to run pytest,
the command, or a program.

It reads requests from its standard input, one line of JSON each: the environment and, for each run,
the arguments and the files for output and status. It answers with the exit status of the fork,
which ends as a new process would (forked.py).
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from tests import forked, huge_pages
from tests.places import ROOT

LONGEST = 1200.0  # seconds for all runs of one request, on a busy machine


def ask(environment: dict[str, str], runs: list[dict]) -> int:
    """Return the exit status of a fork that makes these runs, or minus the number of a signal.

    runs: {"arguments": of pytest, "output": a file for the output, "status": a file for the result
    of pytest.main}. With "command": true, the arguments are those of flash-attest, run in "folder";
    with "python": true, those of Python. "errors" is another file for standard error.
    """
    process = _started()
    process.stdin.write(json.dumps({"environment": environment, "runs": runs}) + "\n")
    process.stdin.flush()
    if not select.select([process.stdout], [], [], LONGEST)[0]:
        os.killpg(process.pid, signal.SIGKILL)
        _started.cache_clear()
        raise subprocess.TimeoutExpired(str(runs), LONGEST)
    return int(process.stdout.readline())


@functools.cache
def _started() -> subprocess.Popen:
    """Return the process. It ends when its standard input is closed, at the latest when this
    process ends.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm"], env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    atexit.register(process.communicate)
    return process


def main() -> None:
    """Answer until the asking process has ended."""
    before = dict(os.environ)
    _prepare()
    set_by_imports = {name: value for name, value in os.environ.items() if name not in before}
    for line in sys.stdin:
        fork = os.fork()
        if fork == 0:
            request = json.loads(line)
            forked.end(_run(set_by_imports | request["environment"], request["runs"]))
        _, status = os.waitpid(fork, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _prepare() -> None:
    """Import what every run imports, and do what it does once in a process.

    Plug-ins of pytest are left out: pytest rewrites them when it loads them.
    """
    gc.disable()  # each collection would walk all that was imported so far
    import numba  # noqa: F401  (our implementations import it, which takes a second)
    import torch.fx.experimental.symbolic_shapes  # torch.autograd.grad imports it
    import torch.utils._device  # noqa: F401  (torch.get_default_device imports it)

    import flash_attest.emulator.cuda  # tests/conftest.py imports it
    import flash_attest.emulator.importing  # noqa: F401
    from flash_attest.properties.law import laws
    from flash_attest.runner.page import run, template
    from flash_attest.runner.plugin import conclusion, reporter, sources  # noqa: F401

    laws()
    for page in (run.TEMPLATE, template.HERE / "base.html.j2"):
        template.compiled(page)
    sources.loaded()  # keeps the resolved paths of modules
    gc.enable()
    gc.collect()
    gc.freeze()  # otherwise each collection of a fork walks, and so copies, all of this
    huge_pages.collapse()


def _run(environment: dict[str, str], runs: list[dict]) -> int:
    """Make the runs in this process. Returns the status of the last one."""
    import pytest

    from flash_attest import command
    from tests import spares

    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # TMPDIR may name another folder
    # Python reads PYTHONPATH only when it starts.
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    _redirect(os.devnull, 0)
    status = 0
    for run in runs:
        _redirect(run["output"], 1)
        _redirect(run.get("errors", run["output"]), 2)
        os.chdir(run.get("folder", "."))
        if run.get("python"):
            status = _status_of(_python, run["arguments"])
        else:
            spares.fork(run["arguments"])
            sys.argv[1:] = run["arguments"]  # judged files may read them
            status = _status_of(command.main if run.get("command") else pytest.main, run["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
        Path(run["status"]).write_text(str(status))
    return status


def _status_of(function: Callable, arguments: list[str]) -> int:
    """Return the value that the function returns, or with which it exits."""
    try:
        return int(function(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)


def _python(arguments: list[str]) -> int:
    """Do what `python` does with these arguments: a file, -c and a program, or -m and a module."""
    how, *rest = arguments
    name = rest.pop(0) if how in ("-c", "-m") else how
    sys.argv[:] = [how if how in ("-c", "-m") else name, *rest]
    sys.path[0] = os.getcwd() if how == "-m" else "" if how == "-c" else os.path.dirname(os.path.abspath(name))
    try:
        if how == "-c":
            exec(compile(name, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
        elif how == "-m":
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(name, run_name="__main__")
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _redirect(path: str, descriptor: int) -> None:
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.dup2(opened, descriptor)
    os.close(opened)


if __name__ == "__main__":
    main()
