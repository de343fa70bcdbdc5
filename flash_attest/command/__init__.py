"""The command flash-attest; python -m flash_attest is the same.

Each subcommand is a module here with NAME, SUMMARY and run(arguments), which returns the exit
status. Importing a subcommand imports neither torch nor pytest, which take seconds, so --help is
quick. `run` imports them once it has read its options.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
from types import ModuleType

from flash_attest import __version__
from flash_attest.arguments import INTERRUPTED, WRONG, no_text
from flash_attest.command.streams import open_closed
from flash_attest.did_you_mean import did_you_mean
from flash_attest.interrupted import interrupt

COMMANDS = (
    "check", "laws", "examples", "docs", "emulate", "trace", "doctor", "sweep", "bench", "calibrate", "power", "merge",
    "compare", "times", "wild",
)  # fmt: skip
# Commands that call implementations in their own process.
CALL_HERE = ("bench", "calibrate", "trace")
USAGE = "usage: flash-attest COMMAND [OPTION...]"
EPILOG = """\
flash-attest COMMAND --help lists a command's options and exit statuses. For every command, status 2 means that the command is
wrong, and 130 that it was interrupted."""


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand. Returns its exit status.

    arguments: the words after the program's name; by default the arguments of this process.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        open_closed()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
        for stream in (sys.stdout, sys.stderr):  # their encoding may lack a character
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
    try:
        if arguments is None and given and given[0] in CALL_HERE and sys.platform == "linux":
            from flash_attest.runner.isolation.leftovers import nothing_left

            with nothing_left(given[0]):
                return _run(given)
        return _run(given)
    except KeyboardInterrupt:
        if arguments is None:  # the process ends, and another Ctrl-C need not say so
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return INTERRUPTED
    except BrokenPipeError:
        # In `flash-attest laws | head`, nobody reads the rest, and flushing at exit would fail
        # again.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0 if arguments else WRONG
    if arguments[0] in ("-V", "--version", "version"):
        print(f"flash-attest {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        print(f"flash-attest: error: unknown {kind} {name!r}{did_you_mean(name, COMMANDS)} "
              f"(commands: {', '.join(COMMANDS)})", file=sys.stderr)  # fmt: skip
        return WRONG
    if problem := _no_text(rest):
        print(f"flash-attest {name}: error: {problem}", file=sys.stderr)
        return WRONG
    return command(name).run(rest)


def _no_text(arguments: list[str]) -> str:
    """Return what is wrong with an argument or with the current folder; "" if nothing is."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        return "the current folder is no longer there: change to another one"
    return next(filter(None, map(no_text, [*arguments, folder])), "")


def command(name: str) -> ModuleType:
    """Return the module of a subcommand."""
    return importlib.import_module(f"{__name__}.{name}")


def help_text() -> str:
    """Return the text of --help."""
    lines = [f"  {name:10} {command(name).SUMMARY}" for name in COMMANDS]
    return "\n".join([USAGE, "", "Judges implementations of attention.", "", *lines, "", EPILOG])
