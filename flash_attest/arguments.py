"""Parses command lines. Suggests corrections of misspelt options, and defines the options that
commands share.

An option has the same spelling, form and meaning in every command. This module does not import
torch, which takes seconds, so --help is quick.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from flash_attest.did_you_mean import did_you_mean
from flash_attest.runner.parts import Shard, parse

DEVICES = ("auto", "cpu", "cuda")
EMULATED = ("80", "90")  # emulator/devices.py, which this does not import
EMULATED_HELP = (
    "without a GPU, the one for which kernels in Triton and Numba are compiled: 80, an A100, or 90, an H100 "
    "($FLASH_ATTEST_EMULATED, else 80)"
)
FAILED = 1  # the exit status if a file cannot be loaded, or if something is wrong with what it has
WRONG = 2  # the exit status if a command line is wrong
INTERRUPTED = 130  # after Ctrl-C


def no_text(text: str) -> str:
    """Return why an argument or a path cannot be used, in one line; "" if it is text.

    Reports and workers take UTF-8 only. A name that the locale cannot decode has surrogates.
    """
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return ""
    shown, encoding = os.fsencode(text).decode("utf-8", "backslashreplace"), sys.getfilesystemencoding()
    if encoding == "utf-8":
        return f"{shown}: is not UTF-8: rename it"
    return f"{shown}: cannot be decoded in this locale ({encoding}): set PYTHONUTF8=1, or LC_ALL=C.UTF-8"


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are one line that says what to do."""

    def __init__(self, prog: str, description: str, epilog: str = "", **more):
        super().__init__(
            prog=prog, description=description, epilog=epilog or None, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter, **more,
        )  # fmt: skip

    def parse_args(self, args=None, namespace=None):
        """Parse a command line. Ends with a suggestion if the command does not know an option."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            unknown_options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
            hint = did_you_mean(unknown_options, known) or f" ({self.prog} --help lists the options)"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2."""
        self.exit(WRONG, f"{self.prog}: error: {message}\n")

    def fail(self, message: str) -> NoReturn:
        """Print what is wrong with a file that the command names, and exit with status 1."""
        self.exit(FAILED, f"{self.prog}: {message}\n")


class Joined(argparse.Action):
    """Joins the names of an option A,B that is given again, where argparse would keep the last."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Add the names to those before."""
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if before is None else f"{before},{values}")


class Added(argparse.Action):
    """Adds the values of an option that is given again to those before, each once."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Add the values to those before."""
        setattr(namespace, self.dest, list(dict.fromkeys([*(getattr(namespace, self.dest) or ()), *values])))


# --- the options that several commands have -------------------------------------------------------


def add_impl(parser: argparse.ArgumentParser, unless: str) -> None:
    """Add --impl. unless: which implementations are taken without it."""
    parser.add_argument(
        "--impl", metavar="A,B", action=Joined,
        help=f"only these implementations ({unless}; an unknown name lists the known ones)",
    )  # fmt: skip


def add_impl_from(parser: argparse.ArgumentParser, what: str = "the Implementation in this file") -> None:
    """Add --impl-from."""
    parser.add_argument("--impl-from", metavar="FILE.py[:NAME]", action="append", default=[],
                        help=f"{what}; may be given again")  # fmt: skip


def add_device(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add --device. more: a further sentence for its help."""
    parser.add_argument("--device", choices=DEVICES, default="auto", help=f"auto: cuda if there is one{more}")


def add_emulated(parser: argparse.ArgumentParser) -> None:
    """Add --emulated."""
    parser.add_argument("--emulated", choices=EMULATED, help=EMULATED_HELP)


def choose_emulated(parser: Parser, options: argparse.Namespace) -> None:
    """Emulate the GPU that --emulated names, if --device leaves none. Ends with an error if there
    is no such one.
    """
    from flash_attest.emulator.errors import EmulatorError  # these import the rooms, which --help does not need
    from flash_attest.properties.machine.gpus import emulate_if_no_gpu

    try:
        emulate_if_no_gpu(options.device, options.emulated)
    except EmulatorError as error:
        parser.error(str(error))


def add_seed(parser: argparse.ArgumentParser, what: str, default: int | None = 0) -> None:
    """Add --seed. what: what the seed decides."""
    parser.add_argument("--seed", type=seed, default=default, metavar="N", help=what)


def add_shard(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --shard. what: what is divided into parts."""
    parser.add_argument("--shard", type=shard, metavar="I/N", help=what)


def add_report(parser: argparse.ArgumentParser, what: str, default: Path | None = None) -> None:
    """Add --report. what: the files that are written there."""
    parser.add_argument("--report", type=Path, default=default, metavar="DIR", help=what)


def add_workers(parser: argparse.ArgumentParser, unless: str) -> None:
    """Add --workers. unless: how many workers there are without it."""
    parser.add_argument("--workers", type=whole, metavar="N", help=f"processes ({unless})")


def add_repeats(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --repeats. what: the action that is repeated."""
    parser.add_argument("--repeats", type=whole, metavar="N", help=what)


def add_case_timeout(parser: argparse.ArgumentParser) -> None:
    """Add --case-timeout."""
    parser.add_argument("--case-timeout", type=seconds, default=120.0, metavar="SECONDS",
                        help="the limit for a call of an implementation (120; 0: no limit)")  # fmt: skip


def add_time_limits(parser: argparse.ArgumentParser) -> None:
    """Add --law-time-limit and --time-limit."""
    parser.add_argument("--law-time-limit", type=seconds, metavar="SECONDS",
                        help="the limit for a law on one implementation (no limit)")  # fmt: skip
    parser.add_argument("--time-limit", type=seconds, metavar="SECONDS",
                        help="the limit for the whole run; --resume goes on from there (no limit)")  # fmt: skip


# --- the forms of their values --------------------------------------------------------------------


def listed(text: str) -> list[str]:
    """Split "a,b" into its words."""
    return [word.strip() for word in text.split(",")]


def some_of(words: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return the words, each once.

    Raises ArgumentTypeError for an unknown word and lists the known ones.
    """
    words, known = list(words), tuple(known)
    for word in words:
        if word not in known:
            raise argparse.ArgumentTypeError(f"{word!r} should be one of {', '.join(known)}{did_you_mean(word, known)}")
    return tuple(dict.fromkeys(words))


def number(text: str) -> float:
    """Read a number. Raises ArgumentTypeError."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: should be a number") from None


def seconds(text: str) -> float:
    """Read a time limit; 0 means none. Raises ArgumentTypeError."""
    value = number(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: should be a number of seconds, or 0 for no limit")
    return value


def whole(text: str) -> int:
    """Read a count. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: should be a whole number, at least 1")
    return int(text)


def seed(text: str) -> int:
    """Read a seed. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text}: should be a whole number, below 2**63")
    return int(text)


def shard(text: str) -> Shard:
    """Read I/N. Raises ArgumentTypeError."""
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--shard ")) from None
