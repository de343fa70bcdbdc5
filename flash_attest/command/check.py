"""flash-attest check: judges implementations by the laws, from any folder.

The laws are pytest tests of this package. No conftest.py, no settings of the current folder and no
other installed pytest plug-ins take part, so a run means the same everywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from flash_attest.arguments import (
    INTERRUPTED,
    WRONG,
    Joined,
    Parser,
    add_case_timeout,
    add_device,
    add_emulated,
    add_repeats,
    add_report,
    add_shard,
    add_time_limits,
    choose_emulated,
)
from flash_attest.command import chapters, targets
from flash_attest.command.streams import reader_may_leave
from flash_attest.places import ROOMS
from flash_attest.runner.profiles import DEFAULT, PROFILES

NAME = "check"
SUMMARY = "judges implementations by the laws: a file, a module, a package, or one of ours"
EPILOG = f"""\
  flash-attest check my_attention.py                      IMPL or IMPLS in this file
  flash-attest check my_attention.py:FAST --law query_sees_exactly_its_prefix
  flash-attest check my_package.attention:IMPL            of a module that can be imported here
  flash-attest check my_package                           with an adapter (entry points of the group {targets.GROUP})
  flash-attest check sageattention                        with an adapter of ours: flash-attest wild --list names them
  flash-attest check triton_fa2 --profile smoke           one of ours; flash-attest check --list names them
  flash-attest check my_attention.py --law NAME --case 'seqlen_q=65 headdim=64'     judge one case again

Exit status: 0 green; 1 not green: a law failed, the file cannot be loaded, something could not be decided, no law of a target
was judged, or the report cannot be written; 2 the command is wrong, or nothing is left to judge; 3 flash-attest itself
failed; 130 interrupted (--resume goes on).
"""
REPORT = Path("attest-report")
SUITE = "flash_attest.runner.plugin.suite"
PLUGINS = ("xdist.plugin", "_hypothesis_pytestplugin", SUITE)
CONFIG = Path(__file__).with_name("check.ini")
# Says which command runs pytest, for messages that print the command to judge a case again.
# Processes of the run inherit it.
ENTRY = {"FLASH_ATTEST_ENTRY": NAME}
# Variables that users set for their own runs of pytest.
NOT_OURS = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
STATUSES = {0: 0, 1: 1, 2: INTERRUPTED, 3: 3, 4: WRONG, 5: WRONG}  # pytest's exit status: ours


def parser_of_options() -> Parser:
    """Make the parser of every option."""
    parser = Parser(f"flash-attest {NAME}", "Judges implementations by the laws of attention.", EPILOG)
    add = parser.add_argument
    add(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="FILE.py[:NAME], MODULE:NAME, a package with an adapter, or one of ours",
    )
    add("--impl", metavar="A,B", action=Joined, help="judge only these implementations of the targets")
    add("--list", action="store_true", help="print the names of our implementations and of adapters, and judge nothing")
    add(
        "--law",
        action="append",
        default=[],
        metavar="A,B",
        help="judge only these laws, and those of --chapter; may be given again (flash-attest laws lists them)",
    )
    add(
        "--chapter",
        action="append",
        default=[],
        metavar="A,B",
        help="judge only these chapters, such as causal, and the laws of --law; may be given again",
    )
    add("--profile", choices=tuple(PROFILES), default=DEFAULT,
        help=f"how many cases a law gets ({', '.join(f'{name} {p.cases}' for name, p in PROFILES.items())})")  # fmt: skip
    add("--seed", type=_seed, default="0", metavar="N", help="which cases are drawn (0), or random")
    add_device(parser)
    add("--here", action="store_true", help="leave out the implementations that need another device, and say which")
    add_emulated(parser)
    add("--case", metavar='"FIELD=VALUE ..."', help='judge one case again, as in --case "seqlen_q=65 headdim=64"')
    add_report(parser, "the folder for results.json and index.html (%(default)s)", REPORT)
    add("--json", type=Path, metavar="FILE", help="also write results.json to this file")
    add_repeats(parser, "how often the laws about races repeat a call (as the profile says)")
    add(
        "--perturb",
        metavar="A,B",
        action=Joined,
        help="the perturbations of the laws about races, or none (all; an unknown name lists them)",
    )
    add_case_timeout(parser)
    add_time_limits(parser)
    add_shard(parser, "the I-th of N parts of the laws (flash-attest merge joins them)")
    add("--resume", action="store_true", help="continue the run whose report is in the folder of --report")
    add("--untrusted", action="store_true", help="import and call the file in a process that holds no expected value")
    add("--no-isolation", action="store_true", help="call implementations in this process, for a debugger")
    add("-n", dest="workers", type=_workers, metavar="N", help="worker processes (auto; 0 with --case)")
    add("-k", dest="expression", metavar="EXPR", help="judge only laws and implementations that match, as in pytest")
    add("-x", dest="first", action="store_true", help="stop at the first failure")
    add("-v", dest="verbose", action="count", default=0, help="print more")
    return parser


def run(arguments: list[str]) -> int:
    """Judge the targets. Returns the exit status."""
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    if options.json and not options.json.parent.is_dir():
        parser.error(f"--json {options.json}: there is no folder {options.json.parent}")
    if options.json and options.json.is_dir():
        parser.error(f"--json {options.json}: is a folder, should be a file")
    if not options.targets and not options.list:
        parser.error("name what to judge: FILE.py, MODULE:NAME, a package with an adapter, or one of ours (--list)")
    try:
        tests = [*_tests(options.law, options.chapter)]
        chosen = targets.resolved(options.targets, options.untrusted)
    except (chapters.UnknownName, targets.TargetError) as error:
        parser.error(str(error))
    import flash_attest.required  # noqa: F401

    choose_emulated(parser, options)
    if options.list:
        print(*sorted([*_ours(options.device), *targets.adapters()]), sep="\n")
        return 0
    with _surroundings(chosen.folders, shlex.join(["flash-attest", NAME, *arguments])):
        try:
            _look_up(chosen, options)
        except targets.TargetError as error:
            parser.error(str(error))
        with reader_may_leave():
            return _judge(pytest_arguments(options, chosen, tests), options)


def pytest_arguments(options: argparse.Namespace, chosen: targets.Targets, tests: list[str]) -> list[str]:
    """Return the arguments for pytest. Only this function knows how options of pytest and of the
    suite are spelt.
    """
    found = ["-c", str(CONFIG), "--rootdir", str(ROOMS), "--noconftest", "--disable-plugin-autoload"]
    for plugin in PLUGINS:
        found += ["-p", plugin]
    found += [f"--impl-from={place}" for place in chosen.imported]
    workers = options.workers or ("0" if options.case else "auto")
    valued = {
        "--impl": options.impl or ",".join(chosen.ours) or None,
        "--hypothesis-profile": options.profile,
        "--hypothesis-seed": options.seed,
        "--device": options.device,
        "--emulated": options.emulated,
        "--case": options.case,
        "--report": options.report,
        "--repeats": options.repeats,
        "--perturb": options.perturb,
        "--case-timeout": options.case_timeout,
        "--law-time-limit": options.law_time_limit,
        "--time-limit": options.time_limit,
        "--shard": options.shard,
        "--numprocesses": workers,
    }
    found += [f"{name}={value}" for name, value in valued.items() if value is not None]
    flags = {
        "--here": options.here,
        "--resume": options.resume,
        "--untrusted": options.untrusted,
        "--no-isolation": options.no_isolation,
        "-x": options.first,
    }
    found += [name for name, given in flags.items() if given]
    found += ["-v"] * options.verbose or ["-q"]  # pytest's header and paths say nothing about kernels
    found += ["-k", options.expression] if options.expression else []
    return [*found, *(tests or [str(ROOMS / "properties")])]


def _tests(laws: list[str], of_chapters: list[str]) -> Iterator[str]:
    """Yield the pytest ids of laws and chapters. Raises UnknownName."""
    for name in _each(of_chapters):
        yield str(ROOMS / "properties" / f"{chapters.chapter_of(name)}.py")
    for law in _each(laws):
        chapter, test = chapters.place_of(law)
        yield f"{ROOMS / 'properties' / chapter}.py::{test}"


def _each(given: list[str]) -> Iterator[str]:
    """Yield the names of an option that may be given again, or with several names: A,B."""
    for names in given:
        yield from (name.strip() for name in names.split(","))


def _look_up(chosen: targets.Targets, options: argparse.Namespace) -> None:
    """Raise TargetError for a module that does not exist, and for a name that is not one of our
    implementations.
    """
    for place in chosen.imported:
        if not targets.is_file(place):
            targets.check_module(place)
    if chosen.ours:
        ours = _ours(options.device, chosen.ours)
        if absent := [name for name in chosen.ours if name not in ours]:
            raise targets.TargetError(targets.unknown(absent[0], _ours(options.device)))


def _ours(device: str, wanted: list[str] | None = None) -> list[str]:
    """Return the names of our implementations, importing only the modules that have `wanted`."""
    from flash_attest.impls.contract import registry
    from flash_attest.properties.machine.gpus import emulate_if_no_gpu

    emulate_if_no_gpu(device)
    return [entry.name for entry in registry.ours(wanted)]


@contextlib.contextmanager
def _surroundings(folders: list[str], command: str) -> Iterator[None]:
    """Make modules in `folders` importable in this block, here and in started processes, and run
    only our own pytest.
    """
    before, path = dict(os.environ), list(sys.path)
    added = [folder for folder in dict.fromkeys(folders) if folder not in sys.path]
    sys.path += added
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [before.get("PYTHONPATH"), *added]))
    os.environ.update(ENTRY | {"FLASH_ATTEST_COMMAND": command})  # which the report names
    for name in NOT_OURS:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(before)


def _judge(arguments: list[str], options: argparse.Namespace) -> int:
    import pytest

    status = int(pytest.main(arguments))
    if status == pytest.ExitCode.NO_TESTS_COLLECTED:
        print(f"flash-attest {NAME}: nothing is left to judge: see --law, --chapter, --shard and -k", file=sys.stderr)
    results = options.report / "results.json"
    if options.json and status in (0, 1) and results.exists():
        try:
            shutil.copyfile(results, options.json)
        except OSError as error:
            print(f"not green: --json {options.json} cannot be written: {error.strerror}")
            return int(pytest.ExitCode.TESTS_FAILED)
    return STATUSES.get(status, status)


def _seed(text: str) -> str:
    if text != "random" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: should be a whole number, or random")
    return text


def _workers(text: str) -> str:
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: should be a whole number, or auto")
    return text
