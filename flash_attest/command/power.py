"""flash-attest power: shows which planted bugs the laws catch, and which bugs other suites would
catch.
"""

from __future__ import annotations

from pathlib import Path

from flash_attest.arguments import (
    Added,
    Joined,
    Parser,
    add_device,
    add_emulated,
    add_repeats,
    add_seed,
    add_shard,
    add_workers,
    seconds,
    whole,
)
from flash_attest.runner.profiles import PROFILES

NAME = "power"
SUMMARY = "which planted bugs the laws catch, and which the rules of other suites would"
DESCRIPTION = """\
Is every planted bug caught by its law? With --matrix: by which laws, and by which other suites? With --races: which layers of
race detection find the planted races?"""
EPILOG = """\
  flash-attest power causal_strict                           these bugs before their laws: verdict and smallest case
  flash-attest power --matrix --json FILE                    each bug before all laws and other suites' rules
  flash-attest power --races --json FILE                     each planted race before each layer, under each perturbation
  flash-attest power --page power.html --from FILE ...       what --matrix --json FILE found, as a page

Exit status: 0 every bug was caught as required; 1 one was not; 2 the command is wrong, or none could be judged here; 130
interrupted: with --json the same command goes on.
"""


def parser_of_options() -> Parser:
    """Make the parser of every option."""
    parser = Parser(f"flash-attest {NAME}", DESCRIPTION, EPILOG)
    parser.add_argument("names", nargs="*", metavar="NAME", help="judge only these bugs (a part of the name is enough)")
    parser.add_argument("--list", action="store_true", help="print the bugs' names and laws, and judge nothing")
    parser.add_argument("--cases", type=whole, metavar="N", help="cases per law (300; --matrix: the profile's)")
    add_seed(parser, "which cases are drawn (0)")
    add_workers(parser, "1; --matrix and --races: one for each core")
    add_device(parser, ", for --matrix and --races; cpu hides GPUs: Triton and Numba run in the emulator")
    add_emulated(parser)
    parser.add_argument("--messages", action="store_true", help="show each law's whole message")
    _add_matrix(parser)
    _add_races(parser)
    return parser


def _add_matrix(parser: Parser) -> None:
    group = parser.add_argument_group("--matrix", "each planted bug before all laws, and the rules of other suites")
    add = group.add_argument
    add("--matrix", action="store_true", help="judge; with --json, continue where an earlier run stopped")
    add("--profile", choices=tuple(PROFILES), default="quick", help="cases per law (%(default)s)")
    add("--json", type=Path, metavar="FILE", help="the file that keeps the results")
    add_shard(group, "the I-th of N parts of the bugs")
    add("--law-timeout", type=seconds, default=300.0, metavar="SECONDS",
        help="for one law on one bug, then its process is ended (300)")  # fmt: skip
    add("--page", type=Path, metavar="FILE", help="write what was found as a page of HTML; judges only with --matrix")
    add("--write", type=Path, metavar="FILE",
        help="write a summary, as docs/measured/power.md (--races: the tables of docs/why/races.md)")  # fmt: skip
    add("--rows", type=Path, metavar="FILE", help="write its rows as JSON, as docs/measured/power.json")
    add("--from", type=Path, nargs="+", action=Added, default=[], metavar="JSON", dest="records",
        help="for these three: what --matrix --json or --rows wrote, in one or more environments")  # fmt: skip


def _add_races(parser: Parser) -> None:
    group = parser.add_argument_group("--races", "each planted race before each layer of race detection")
    group.add_argument("--races", action="store_true", help="judge; with --json, continue where an earlier run stopped")
    group.add_argument("--layers", action=Joined, metavar="A,B",
                       help="judge only these layers (an unknown name lists the known ones)")  # fmt: skip
    add_repeats(group, "the most repeats of a call (on a CPU 10, on a GPU 100)")


def run(arguments: list[str]) -> int:
    """Judge planted bugs. Returns the exit status."""
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    if not options.law_timeout:
        parser.error("--law-timeout 0: should be more than 0")
    import flash_attest.required  # noqa: F401
    from flash_attest.mutants.command import power

    return power(parser, options)
