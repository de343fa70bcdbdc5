"""flash-attest trace: runs a Python file, and reports races of its GPU kernels."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shlex
import sys
import traceback
from pathlib import Path

from flash_attest import python_file
from flash_attest.arguments import WRONG, Parser, add_emulated, add_seed, seconds
from flash_attest.command import apart
from flash_attest.did_you_mean import did_you_mean

NAME = "trace"
SUMMARY = "runs a Python file, and reports every race of the GPU kernels that it launches"
DESCRIPTION = """\
Runs a Python file in which GPU kernels are launched on CPU tensors: @triton.jit, @cuda.jit of Numba, and CUDA C++ that
flash_attest.emulator.cuda loads. They run in the emulator, which checks every access. No GPU is needed, and none is used."""
EPILOG = """\
  flash-attest trace kernels.py                 runs the file
  flash-attest trace kernels.py:launch          runs it, then calls launch()
  flash-attest trace kernels.py -- --size 64    passes the arguments after -- to the file

Exit status: 0 nothing was found, on these inputs; 1 something was; 2 no kernel was launched, the file raised, or the command
is wrong; 130 interrupted.
"""


# What torch says if a program asks for a GPU where there is none, or where it is hidden.
NO_GPU = re.compile(
    r"not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device"
)


class _NoFunction(Exception):
    """The file has no function with the given name."""


def run(arguments: list[str]) -> int:
    """Trace the file. Returns the exit status."""
    parser = Parser(f"flash-attest {NAME}", DESCRIPTION, EPILOG)
    parser.add_argument("file", metavar="FILE.py[:NAME]", help="the file, and the function to call in it")
    add_seed(parser, "0 runs threads and blocks in order, any other number in a random order (0)")
    parser.add_argument("--limit", type=seconds, default=60.0, metavar="SECONDS", help="the limit for one launch (60)")
    add_emulated(parser)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    if not options.limit:
        parser.error("--limit 0: should be more than 0")
    path, name = _split(options.file)
    if problem := python_file.problem_of(path):
        parser.error(f"{options.file}: {problem}")
    import flash_attest.required  # noqa: F401

    try:
        return apart.run_apart(lambda: _traced(path, name, arguments[cut + 1 :], options))
    except apart.Ended as ended:
        print(f"flash-attest {NAME}: {path} ended its process: {ended}", file=sys.stderr)
        return WRONG


def _split(text: str) -> tuple[Path, str]:
    """Split FILE.py:NAME into the file and the name, which may be ""."""
    if not os.path.lexists(text) and ":" in text:
        file, _, name = text.rpartition(":")
        return Path(file), name
    return Path(text), ""


def _traced(path: Path, name: str, arguments: list[str], options) -> int:
    from flash_attest.emulator.errors import EmulatorError
    from flash_attest.properties.machine.gpus import emulate_if_no_gpu
    from flash_attest.races.tracing import tracing

    try:
        emulate_if_no_gpu("cpu", options.emulated)
    except EmulatorError as error:
        print(f"flash-attest {NAME}: error: {error}", file=sys.stderr)
        return WRONG
    problem = ""
    with tracing(options.seed, limit=options.limit) as trace:
        try:
            _run(path, name, arguments)
        except _NoFunction as error:
            problem = str(error)
        except SystemExit as ended:
            if ended.code not in (None, 0):
                problem = f"{path} ended with exit status {ended.code}"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if not (problem := _asks_for_a_gpu(error, path)):
                _print_traceback(error, path)
                problem = f"{path} raised {type(error).__name__}"
    for finding in trace.findings:
        print(f"{finding}\n")
    if problem:
        print(f"flash-attest {NAME}: {problem}", file=sys.stderr)
    return _concluded(path, name, trace, bool(problem))


def _concluded(path: Path, name: str, trace, stopped: bool) -> int:
    """Print the last line. Returns the exit status."""
    launches = f"{trace.launches} launch{'es' * (trace.launches != 1)}"
    if trace.findings:
        print(f"{len(trace.findings)} found in {launches}")
        return 1
    if stopped:
        return WRONG
    if not trace.launches:
        hint = "" if name else f"; name the function that launches them: {path}:NAME"
        print(
            f"flash-attest {NAME}: no kernel was launched in the emulator, so nothing was traced{hint}", file=sys.stderr
        )
        return WRONG
    print(f"nothing found in {launches}: no race, and no access outside of a tensor, on these inputs")
    return 0


def _run(path: Path, name: str, arguments: list[str]) -> None:
    """Run a file as `python FILE` does, then call the function if one is named."""
    from flash_attest.impls.contract.record import Implementation

    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    if not name:
        runpy.run_path(str(path), run_name="__main__")
        return
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # inspect and pickle look for it there
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if isinstance(function, Implementation):
        raise _NoFunction(
            f"{path}: {name} is an Implementation: flash-attest check {path}:{name} --law no_race_is_traced traces it"
        )
    if not callable(function):
        known = [each for each, value in vars(module).items() if callable(value)]
        raise _NoFunction(f"{path}: there is no function {name} in it{did_you_mean(name, known)}")
    function()


def _asks_for_a_gpu(error: BaseException, path: Path) -> str:
    """Return what to do if torch raised because there is no GPU; "" for any other error."""
    if not NO_GPU.search(str(error)):
        return ""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == path.resolve()
    ]
    line = f":{frames[-1].lineno}" if frames else ""
    return (
        f"{path}{line} asks torch for a GPU, and none is used here: pass CPU tensors, or let torch pretend to have one: "
        f"flash-attest emulate --trace -- python {shlex.quote(str(path))}"
    )


def _print_traceback(error: BaseException, path: Path) -> None:
    """Print the traceback from the file's frame on; the frames before it belong to this command."""
    frames = error.__traceback__
    while frames is not None and Path(frames.tb_frame.f_code.co_filename).resolve() != path.resolve():
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)
