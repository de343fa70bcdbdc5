"""flash-attest wild: installs packages that contain attention kernels, and judges each of them."""

from __future__ import annotations

import signal
from pathlib import Path

from flash_attest.arguments import FAILED, INTERRUPTED, Parser, seconds
from flash_attest.did_you_mean import did_you_mean
from flash_attest.interrupted import SIGNALS, interrupt
from flash_attest.runner.profiles import PROFILES

NAME = "wild"
SUMMARY = "installs packages that people use, each in its own folder, and judges them"
DESCRIPTION = """\
Installs the packages that have an adapter, each into a folder of its own and without its dependencies, and judges one after
another. A package is as expected if no law fails but those that its adapter lists as known failures, by the numbers of
docs/findings.md. Files of public repositories, which no index has, are judged if a variable names the folder of a clone
(--list). The results are kept: the same command goes on where it was stopped, and judges a package again if there is a new
release or another adapter. docs/use/running-in-ci.md says what to do if a package is not as expected."""
EPILOG = """\
  flash-attest wild                                all packages
  flash-attest wild fla-core sageattention         these
  flash-attest wild --list                         their names and versions

Exit status: 0 all packages that can be judged here are as expected; 1 one is not, or could not be installed, or none can be
judged here; 2 the command is wrong, or another run uses the folder; 130 interrupted: the same command goes on.
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
    if options.write and options.write.is_dir():
        parser.error(f"--write {options.write}: is a folder, should be a file")
    import flash_attest.required  # noqa: F401
    from flash_attest.wild.packages import PACKAGES, SOURCES, key_of

    known = PACKAGES | SOURCES
    spellings = {key_of(package.title): key for key, package in known.items()} | {key: key for key in known}
    if unknown := [name for name in options.names if key_of(name) not in spellings]:
        names = [package.name for package in known.values()]
        parser.error(f"{unknown[0]}: no such package{did_you_mean(unknown[0], names)} (packages: {', '.join(names)})")
    keys = {spellings[key_of(name)] for name in options.names} or known.keys()
    chosen = [package for key, package in known.items() if key in keys]
    if options.list:
        for package in chosen:
            print(
                f"{package.requirement:46} findings of {package.judged}{f'; needs {package.needs}' * bool(package.needs)}"
            )
        return 0
    from filelock import FileLock, Timeout

    from flash_attest.properties.machine.gpus import visible_gpus
    from flash_attest.wild.judge import RESULTS, Run, write

    gpus = visible_gpus()
    if options.device == "cuda" and not gpus:
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    device = options.device if options.device != "auto" else "cuda" if gpus else "cpu"
    run = Run(options.folder, device, options.profile, options.time_limit, options.again)
    lock = FileLock(options.folder / "in-use.lock", timeout=0)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        parser.error(f"--folder {options.folder}: in use by another run: name another one")
    except OSError as error:
        parser.error(f"--folder {options.folder}: cannot be written to ({error.strerror}): name another one")
    # A time limit, which sends SIGTERM, ends the command as Ctrl-C does. What nohup ignores stays
    # ignored.
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        expected = run.judge(chosen)
        if options.write:
            write(options.write, run.results())
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.fail(f"{error.filename or options.folder}: cannot be written to ({error.strerror})")
    except KeyboardInterrupt:
        print("interrupted: the same command goes on")
        return INTERRUPTED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        lock.release()
    print(f"reports: {options.folder}/NAME/index.html, results: {options.folder / RESULTS}")
    return 0 if expected else FAILED
