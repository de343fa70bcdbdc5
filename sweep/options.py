"""The command line of the sweep: its options, and messages about wrong values."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from flash_attest.arguments import (
    Parser,
    add_case_timeout,
    add_device,
    add_emulated,
    add_impl,
    add_impl_from,
    add_repeats,
    add_report,
    add_seed,
    add_shard,
    add_workers,
    number,
    whole,
)

DESCRIPTION = (
    "Hunts races for hours by the laws of test_races, with cases and perturbations drawn at random: on all GPUs, or in the "
    "emulator if there is none."
)
EPILOG = """\
  flash-attest sweep --hours 8                                     ours, on all GPUs; goes on with the file of --db
  flash-attest sweep --minutes 30 --impl-from my_attention.py      yours
  flash-attest sweep --minutes 0                                   the report of what is in the file, without a run
  flash-attest sweep --hours 8 --seed 7 --shard 1/2 --db one.db    on one host, --shard 2/2 on another; then
  flash-attest merge one.db two.db --into both.db                  their files together (docs/use/sweep.md)

Exit status: 0 nothing found; 1 something found, undecided, or a file cannot be loaded; 2 the command is wrong; 3 stopped
early, for example because the file cannot be written; 130 interrupted.
"""
MOST_HOURS = 24 * 365


def parser_of_options(prog: str = "flash-attest sweep") -> Parser:
    """Make the parser of every option."""
    parser = Parser(prog, DESCRIPTION, EPILOG)
    add = parser.add_argument
    add("--hours", type=_time, metavar="H", help="how long to sweep; each start sweeps this long and adds to the file")
    add("--minutes", type=_time, metavar="M", help="added to --hours; 0: only write the report")
    add("--runs", type=whole, metavar="N", help="at most N runs, in all (no limit)")
    add_impl(parser, "all that run on the GPU; without one, those whose kernels run in the emulator")
    add_impl_from(parser)
    add_device(parser)
    add_emulated(parser)
    add_workers(parser, "one for each core; on GPUs several for each")
    add_repeats(parser, "calls that a run of the repeat layer compares (as flash-attest check --repeats)")
    add_seed(parser, "which runs are drawn (the seed of the file; random for a new file)", None)
    add_shard(parser, "every N-th run, from the I-th on; needs --seed")
    add_case_timeout(parser)
    add("--db", type=Path, default=Path("attest-sweep/sweep.db"), metavar="FILE", help="file of runs (%(default)s)")
    add_report(parser, "the folder for index.html and summary.json (the folder of --db)")
    add("--ray", action="store_true", help="run shards on many machines (see flash-attest sweep --ray --help)")
    return parser


def parsed(arguments: list[str]) -> tuple[Parser, argparse.Namespace]:
    """Return the parser, which later errors need, and the options. Exits if the options contradict
    each other.
    """
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    timed = options.hours is not None or options.minutes is not None
    if not timed and options.runs is None:
        parser.error("say how long: --hours H, --minutes M, or --runs N")
    options.seconds = 3600 * (options.hours or 0) + 60 * (options.minutes or 0) if timed else math.inf
    if options.hours == 0 and options.minutes is None:
        parser.error("--hours 0: should be above 0 (--minutes 0 only writes the report)")
    if options.shard is not None and options.seed is None and not options.db.exists():
        parser.error(f"--shard {options.shard}: needs --seed N, the same for all shards")
    options.report = options.report or options.db.parent
    return parser, options


RAY = (
    "A sweep on many machines: each shard is a task of Ray (https://docs.ray.io), whose file comes back and is merged. "
    "Options that are not listed here go to flash-attest sweep of each shard."
)
RAY_EPILOG = """\
  flash-attest sweep --ray --address auto --shards 16 --gpus 8 --db all.db --seed 7 --hours 8

Ray copies this checkout to its machines, or the current folder if flash-attest is installed. The machines need
flash-attest's packages (docs/use/sweep.md).

Exit status: 0 nothing found; 1 something found, or a shard failed; 2 the command is wrong; 130 interrupted.
"""


def parser_for_ray() -> Parser:
    """Make the parser of the options that exist only with --ray, or have another form there."""
    parser = Parser("flash-attest sweep --ray", RAY, RAY_EPILOG)
    add = parser.add_argument
    add("--address", help="the address of the cluster, such as auto (without it: a cluster on this machine)")
    add("--shards", type=int, required=True, metavar="N", help="the number of tasks")
    add("--gpus", type=int, default=0, metavar="N", help="GPUs of each task (0: the emulator)")
    add("--cpus", type=int, default=1, metavar="N", help="CPUs of each task (1)")
    add("--db", type=Path, required=True, metavar="FILE", help="the joined file, which must not exist")
    add("--seed", required=True, metavar="N", help="which runs are drawn, by all shards together")
    add("--device", choices=("cpu", "cuda"), help="the device of all shards (cuda if --gpus is at least 1)")
    add("--workers", metavar="N", help="processes of each shard (on GPUs several for each; otherwise --cpus)")
    add_impl_from(parser, "a file in the folder that Ray copies")
    return parser


def parsed_for_ray(arguments: list[str]) -> tuple[Parser, argparse.Namespace, list[str]]:
    """Return the parser, its options, and the options of each shard. Exits if one is wrong."""
    parser = parser_for_ray()
    options, rest = parser.parse_known_args(arguments)
    for name, least in ("shards", 1), ("gpus", 0), ("cpus", 1):
        if getattr(options, name) < least:
            parser.error(f"--{name} {getattr(options, name)}: should be at least {least}")
    if options.db.exists():
        parser.error(f"--db {options.db}: already exists: name another file")
    device = options.device or ("cuda" if options.gpus else "cpu")
    workers = options.workers or (None if options.gpus else str(options.cpus))
    rest += ["--seed", options.seed, "--device", device, *(["--workers", workers] if workers else [])]
    parsed([*rest, "--shard", f"1/{options.shards}"])  # reports errors before any shard starts
    return parser, options, rest


def _time(text: str) -> float:
    value = number(text)
    if not 0 <= value <= MOST_HOURS * 60:
        raise argparse.ArgumentTypeError(f"{text}: should be a number, 0 or above")
    return value
