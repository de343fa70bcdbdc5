"""flash-attest merge joins the reports of the parts of a run, or the files of several sweeps."""

from __future__ import annotations

from pathlib import Path

from flash_attest.arguments import Parser, add_report

NAME = "merge"
SUMMARY = "joins the reports of all parts of a run, or the files of several sweeps"
EPILOG = """\
  flash-attest merge part-1 part-2 part-3 --into attest-report     the reports of check --shard 1/3, 2/3, 3/3
  flash-attest merge one.db two.db --into both.db                  the files of --db of several sweeps, with a report

Exit status: 0 the whole run is green, 1 it is not; of sweeps: 0 nothing was found, 1 something was. 2 they do not belong
together, or the command is wrong.
"""


def run(arguments: list[str]) -> int:
    """Join the given reports or files. Returns the exit status."""
    parser = Parser(
        f"flash-attest {NAME}", "Joins the reports of all parts of a run, or the files of several sweeps.", EPILOG
    )
    parser.add_argument("items", nargs="+", type=Path, metavar="REPORT_DIR|FILE.db", help="reports, or files of sweeps")
    parser.add_argument("--into", required=True, type=Path, metavar="DIR|FILE.db", help="the joined report or file")
    add_report(parser, "for sweeps: the folder for index.html and summary.json (the folder of --into)")
    options = parser.parse_args(arguments)
    if len({item.resolve() for item in options.items}) < len(options.items):
        parser.error(f"a {'FILE' if is_sweep(options.items[0]) else 'REPORT_DIR'} is given twice")
    sweeps = [item for item in options.items if is_sweep(item)]
    if sweeps and len(sweeps) < len(options.items):
        report = next(item for item in options.items if not is_sweep(item))
        parser.error(f"{sweeps[0]} is the file of a sweep and {report} a report: should be all of one kind")
    import flash_attest.required  # noqa: F401

    return _sweeps(parser, options) if sweeps else _reports(parser, options)


def is_sweep(path: Path) -> bool:
    """Return whether a path is the file of a sweep rather than a report, judging by its ending."""
    return path.suffix == ".db"


def _sweeps(parser: Parser, options) -> int:
    from flash_attest.sweep import merge
    from flash_attest.sweep.store import StoreError

    try:
        return merge.join(options.items, options.into, options.report)
    except (merge.MergeError, StoreError, OSError) as error:
        parser.error(str(error))


def _reports(parser: Parser, options) -> int:
    from flash_attest.runner.plugin import merge
    from flash_attest.runner.plugin.folder import FolderError
    from flash_attest.runner.plugin.saved import NoReport

    if options.report:
        parser.error(f"--report {options.report}: is for sweeps; a joined report goes to --into")
    try:
        return merge.join(options.items, options.into)
    except FolderError as error:
        parser.error(str(error).replace("--report", "--into"))
    except (merge.MergeError, NoReport) as error:
        parser.error(str(error))
