"""The command line: the options, and an error message with the value for what is not allowed."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch

from flash_attest.runner.plugin import shard
from flash_attest.runner.plugin.shard import Shard

DESCRIPTION = (
    "Hunts races for hours by the laws of test_races, on cases and under perturbations drawn at random, on all GPUs; without "
    "one, in the emulator."
)
EPILOG = """\
  flash-attest sweep --hours 8                                     ours, on all GPUs; goes on with the file of --db
  flash-attest sweep --minutes 30 --impl-from my_attention.py      yours
  flash-attest sweep --minutes 0                                   the report of what is in the file, without a run
  flash-attest sweep --hours 8 --seed 7 --shard 1/2 --db one.db    on one host, --shard 2/2 on another; then
  flash-attest merge one.db two.db --into both.db                  their files together (docs/sweep.md)

Exit status: 0 nothing found; 1 something found, or undecided; 2 the command is wrong; 3 stopped before the end, as the file
cannot be written, say; 130 interrupted.
"""
MOST_HOURS = 24 * 365


def parser_of_options(prog: str = "flash-attest sweep") -> argparse.ArgumentParser:
    """Every option."""
    parser = argparse.ArgumentParser(
        prog=prog, description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--hours", type=_number, metavar="H", help="how long; each start sweeps so long and adds to the file")
    add("--minutes", type=_number, metavar="M", help="added to --hours; 0: only write the report")
    add("--runs", type=_whole, metavar="N", help="at most so many runs, in all (no limit)")
    add("--impl", metavar="A,B", help="only these implementations (an unknown name lists the known ones; all that run on "
        "the GPU; without one, those whose kernels run in the emulator)")  # fmt: skip
    add("--impl-from", metavar="FILE.py[:NAME]", action="append", default=[],
        help="the Implementation in this file; may be given again")  # fmt: skip
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda if there is one")
    add("--workers", type=_whole, metavar="N", help="processes (one for each core; on GPUs several for each)")
    add(
        "--repeats",
        type=_whole,
        metavar="N",
        help="calls that a run of the repeat layer compares (as pytest --repeats)",
    )
    add("--seed", type=_seed, metavar="N", help="which runs are drawn (that of the file; a new one gets a random one)")
    add("--shard", type=_shard, default=None, metavar="I/N", help="every N-th run, from the I-th on; needs --seed")
    add("--case-timeout", type=_seconds, default=120.0, metavar="SECONDS",
        help="the limit for a call of an implementation (120; 0: no limit)")  # fmt: skip
    add("--db", type=Path, default=Path("attest-sweep/sweep.db"), metavar="FILE", help="the runs (%(default)s)")
    add("--report", type=Path, metavar="DIR", help="for index.html and summary.json (the folder of --db)")
    return parser


def parsed(arguments: list[str]) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """The options, and the parser for errors that are found later. Exits with a message if options contradict each other."""
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    given = [value for value in (options.hours, options.minutes) if value is not None]
    if not given and options.runs is None:
        parser.error("say how long: --hours H, --minutes M, or --runs N")
    options.seconds = 3600 * (options.hours or 0) + 60 * (options.minutes or 0) if given else math.inf
    if options.hours == 0 and options.minutes is None:
        parser.error("--hours 0: should be above 0 (--minutes 0 only writes the report)")
    if options.shard is not None and options.seed is None and not options.db.exists():
        parser.error(f"--shard {options.shard}: needs --seed N, the same for all shards")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    options.report = options.report or options.db.parent
    return parser, options


def _number(text: str) -> float:
    value = _float(text)
    if not 0 <= value <= MOST_HOURS * 60:
        raise argparse.ArgumentTypeError(f"{text}: should be a number, 0 or above")
    return value


def _seconds(text: str) -> float:
    value = _float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: should be a number of seconds, or 0 for no limit")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: should be a number") from None


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: should be a whole number, at least 1")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text}: should be a whole number, below 2**63")
    return int(text)


def _shard(text: str) -> Shard:
    try:
        return shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--shard ")) from None
