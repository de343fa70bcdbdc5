"""flash-attest wild: installs packages that contain attention kernels, and judges each of them."""

from __future__ import annotations

from pathlib import Path

from flash_attest.arguments import FAILED, Parser, seconds
from flash_attest.did_you_mean import did_you_mean
from flash_attest.runner.profiles import PROFILES

NAME = "wild"
SUMMARY = "installs packages that people use, each in its own folder, and judges them"
DESCRIPTION = """\
Installs the packages that have an adapter, each into a folder of its own and without its dependencies, and judges one after
another. A package is as expected if no law fails but those that its adapter lists as known failures, by the numbers of
docs/findings.md. Files of public repositories, which no index has, are judged if a variable names the folder of a clone
(--list). The results are kept: the same command goes on where it was stopped, and judges a package again if there is a new
release or another adapter."""
EPILOG = """\
  flash-attest wild                                all packages
  flash-attest wild fla-core sageattention         these
  flash-attest wild --list                         their names and versions

Exit status: 0 all packages are as expected; 1 one is not, or could not be installed; 2 the command is wrong; 130 interrupted:
the same command goes on.
"""


def parser_of_options() -> Parser:
    """Make the parser of every option."""
    parser = Parser(f"flash-attest {NAME}", DESCRIPTION, EPILOG)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="judge only these packages")
    add("--list", action="store_true", help="print the packages, the versions of the findings, and judge nothing")
    add("--folder", type=Path, default=Path("attest-report/wild"), metavar="DIR",
        help="where packages, reports and results go (%(default)s)")  # fmt: skip
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda if there is one")
    add("--profile", choices=tuple(PROFILES), default="smoke", help="cases per law (%(default)s)")
    add("--time-limit", type=seconds, default=1800.0, metavar="SECONDS", help="for one package (1800)")
    add("--again", action="store_true", help="judge also the packages that were judged before")
    add("--write", type=Path, metavar="FILE", help="also write the results to this file, as docs/measured/wild.json")
    return parser


def run(arguments: list[str]) -> int:
    """Judge packages. Returns the exit status."""
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    if options.write and not options.write.parent.is_dir():
        parser.error(f"--write {options.write}: there is no folder {options.write.parent}")
    import flash_attest.required  # noqa: F401
    from flash_attest.wild.packages import PACKAGES, SOURCES

    by_key = {name.lower().replace("-", "_"): name for name in options.names}
    known = PACKAGES | SOURCES
    if unknown := [name for key, name in by_key.items() if key not in known]:
        names = [package.name for package in known.values()]
        parser.error(f"{unknown[0]}: no such package{did_you_mean(unknown[0], names)} (packages: {', '.join(names)})")
    chosen = [package for key, package in known.items() if not by_key or key in by_key]
    if options.list:
        for package in chosen:
            print(
                f"{package.requirement:45} findings of {package.judged}{f'; needs {package.needs}' * bool(package.needs)}"
            )
        return 0
    from flash_attest.properties.machine.gpus import visible_gpus
    from flash_attest.wild.judge import RESULTS, Run, write

    device = options.device if options.device != "auto" else "cuda" if visible_gpus() else "cpu"
    run = Run(options.folder, device, options.profile, options.time_limit, options.again)
    try:
        expected = run.judge(chosen)
    except ValueError as error:
        parser.error(str(error))
    if options.write:
        write(options.write, run.results())
    print(f"reports: {options.folder}/NAME/index.html, results: {options.folder / RESULTS}")
    return 0 if expected else FAILED
