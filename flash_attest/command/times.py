"""flash-attest times: shows where the time of a run went."""

from __future__ import annotations

from flash_attest.arguments import Parser, whole

NAME = "times"
SUMMARY = "where the time of a run went, from its report"
SLOWEST = 20
EPILOG = """\
Seconds are those of workers: two workers that judge for a minute are 120 s. The line "pytest and xdist" has the time of no
law: start-up, collecting, sending results, a worker that waits for the last one to finish.

Exit status: 0, or 2 if there is no such report.
"""


def run(arguments: list[str]) -> int:
    """Print the tables. Returns the exit status."""
    parser = Parser(
        f"flash-attest {NAME}", "Where the time of a run went: by implementation, law and kind of work.", EPILOG
    )
    parser.add_argument("report", nargs="?", default="attest-report", help="the folder of results.json (attest-report)")
    parser.add_argument(
        "--slowest", type=whole, default=SLOWEST, metavar="N", help=f"how many laws are listed ({SLOWEST})"
    )
    options = parser.parse_args(arguments)
    import flash_attest.required  # noqa: F401
    from flash_attest.runner.plugin import times
    from flash_attest.runner.plugin.saved import NoReport

    try:
        times.show(options.report, options.slowest)
    except NoReport as error:
        parser.error(str(error))
    return 0
