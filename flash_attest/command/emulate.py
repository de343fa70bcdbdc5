"""flash-attest emulate: runs a program that needs a GPU, such as tests of kernels, without one."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from flash_attest.arguments import INTERRUPTED, WRONG, Parser, add_emulated, add_seed, seconds
from flash_attest.emulator import devices
from flash_attest.emulator.errors import EmulatorError

NAME = "emulate"
SUMMARY = "runs a program that needs a GPU without one, and reports races of its kernels if asked to"
DESCRIPTION = """\
Runs a program, such as pytest, in which PyTorch pretends to have a GPU. Kernels of @triton.jit and @cuda.jit run on
the CPU, in the emulator. Processes that the program starts are included. If there is a GPU, nothing is emulated;
CUDA_VISIBLE_DEVICES= hides it."""
EPILOG = """\
  flash-attest emulate -- pytest tests/                   unchanged tests that were written for a GPU
  flash-attest emulate --trace -- pytest tests/ -n 4      traces every launch; prints each finding once, at the end
  flash-attest emulate -- python train.py --steps 3       a script

Exit status: the program's status. With --trace, if that is 0: 1 something was found; 2 no kernel was launched. 2 also if the
command is wrong; 130 interrupted.
"""
AT_START = Path(__file__).resolve().parent.parent / "at_start"
MOST_TESTS = 3  # tests named below a finding


def run(arguments: list[str]) -> int:
    """Run the given command. Returns the exit status."""
    parser = Parser(f"flash-attest {NAME}", DESCRIPTION, EPILOG, usage=f"flash-attest {NAME} [OPTION...] -- COMMAND...")
    add_emulated(parser)
    parser.add_argument("--trace", action="store_true", help="check every access of every launch")
    add_seed(parser, "with --trace: 0 runs threads and blocks in order, any other number in a random order (0)")
    parser.add_argument(
        "--limit", type=seconds, default=60.0, metavar="SECONDS", help="with --trace: the limit for one launch (60)"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="pytest, python, a script or a program"
    )
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error(f"there is no command, as in flash-attest {NAME} -- pytest tests/")
    if not options.limit:
        parser.error("--limit 0: should be more than 0")
    try:
        devices.target()
    except EmulatorError as error:
        parser.error(str(error))
    with contextlib.ExitStack() as stack:
        folder = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flash-attest-"))) if options.trace else None
        )
        if folder is not None:
            (folder / "options.json").write_text(json.dumps({"seed": options.seed, "limit": options.limit}))
        with _emulating(folder, options.emulated):
            status = _run(command)
        if folder is None:
            return status
        return _report(folder, status)


@contextlib.contextmanager
def _emulating(folder: Path | None, target: str | None) -> Iterator[None]:
    """Emulate in this process, and in its children through at_start/sitecustomize.py.

    target: the GPU, "80" or "90"; None leaves the choice to the environment.
    """
    path = os.pathsep.join(filter(None, [str(AT_START), os.environ.get("PYTHONPATH", "")]))
    environment = {"PYTHONPATH": path} | ({"FLASH_ATTEST_TRACE": str(folder)} if folder else {})
    environment |= {devices.VARIABLE: target} if target else {}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        importlib.import_module("flash_attest.emulated")
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _run(command: list[str]) -> int:
    """Run pytest, modules and scripts in this process, and other programs in a new process."""
    program, *arguments = command
    name = Path(program).name
    if name in ("pytest", "py.test"):
        return _in_this_process("pytest", arguments, module=True)
    if program.endswith(".py"):
        return _in_this_process(program, arguments)
    if name.startswith("python"):
        if arguments[:1] == ["-m"] and len(arguments) > 1:
            sys.path.insert(0, os.getcwd())
            return _in_this_process(arguments[1], arguments[2:], module=True)
        if arguments and not arguments[0].startswith("-"):
            return _in_this_process(arguments[0], arguments[1:])
        command = [sys.executable, *arguments] if name == program else command
    try:
        return subprocess.run(command).returncode
    except OSError as error:
        print(f"{program}: {error.strerror}: should be pytest, python, a script or a program", file=sys.stderr)
        return WRONG


def _in_this_process(program: str, arguments: list[str], module: bool = False) -> int:
    """Run a module or a script as Python does. Returns its exit status."""
    sys.argv = [program, *arguments]
    try:
        if module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        elif not Path(program).is_file():
            print(f"{program}: there is no such file", file=sys.stderr)
            return WRONG
        else:
            sys.path.insert(0, str(Path(program).resolve().parent))
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _report(folder: Path, status: int) -> int:
    """Print each finding once, with its lines and the tests in which it was found."""
    from flash_attest.races import recording  # imports torch

    sys.stdout.flush()
    recorded = recording.read(folder)
    for finding in recorded.findings:
        print(f"\n{finding}")
        if tests := recorded.tests[finding.key]:
            more = f" and {len(tests) - MOST_TESTS} more" if len(tests) > MOST_TESTS else ""
            print(f"  in {', '.join(tests[:MOST_TESTS])}{more}")
    count = {0: "no finding", 1: "1 finding"}.get(len(recorded.findings), f"{len(recorded.findings)} findings")
    launches = "1 launch" if recorded.launches == 1 else f"{recorded.launches} launches"
    if not recorded.launches:
        print(
            "\ntraced: no kernel ran in the emulator, so nothing was checked"
            " (if there is a GPU, hide it with CUDA_VISIBLE_DEVICES=)"
        )
        return status or WRONG
    print(f"\ntraced: {launches}, {count}")
    return status or int(bool(recorded.findings))


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
