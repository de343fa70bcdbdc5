"""Judges packages in turn, each in a process of its own, and keeps the results of those judged."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from flash_attest import __version__
from flash_attest.places import IMPORTED_FROM
from flash_attest.properties.machine.gpus import note_on
from flash_attest.wild.install import InstallError, installed, newest
from flash_attest.wild.packages import Package, Source

RESULTS = "wild.json"
COUNTS = ("pass", "known", "fail", "refused", "unknown")
STOPPING = 60.0  # seconds for a run to end after an interruption


@dataclass
class Row:
    """The result of one package.

    version: the one that was judged. newest: the newest on the index. device, profile: how it was
    judged; "cpu, as sm_90" if another GPU than the default was emulated. adapter: a digest of the
    adapter's text, as what it says is known only once its package is there, and of this suite's
    version. seconds: of the run. counts: laws by verdict, over the implementations of the adapter;
    "known" are known failures. cases: how many were judged. status: the exit status of the run.
    verdict: its last line.
    """

    version: str
    newest: str
    device: str
    profile: str
    adapter: str
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    cases: int = 0
    status: int = 0
    verdict: str = ""

    def is_of(self, other: Row) -> bool:
        """Return whether the other row would judge the same again."""
        return all(getattr(self, name) == getattr(other, name) for name in ("version", "device", "profile", "adapter"))

    @property
    def is_whole(self) -> bool:
        """Whether the run came to its end, with whatever result."""
        return self.status in (0, 1)


@dataclass(frozen=True)
class Run:
    """folder: where packages, reports and results go. again: judge also what was judged before."""

    folder: Path
    device: str = "cpu"
    profile: str = "smoke"
    time_limit: float = 1800.0
    again: bool = False

    def results(self) -> dict[str, Row]:
        """Return the rows on disk by package. Raises ValueError if the file is damaged."""
        path = self.folder / RESULTS
        if not path.exists():
            return {}
        try:
            return {key: Row(**row) for key, row in json.loads(path.read_text(encoding="utf-8")).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: is damaged ({error}): remove it, or give another --folder") from None

    def judge(self, packages: Iterable[Package | Source]) -> bool:
        """Judge packages and print a line for each.

        Returns whether all are as expected, which they are not if none is judged here.
        """
        rows, expected, judged = self.results(), True, False
        for package in packages:
            if reason := self.not_here(package):
                print(f"{package.name}: {reason}", flush=True)
                continue
            try:
                row = self._planned(package)
                before = rows.get(package.key)
                if before and before.is_of(row) and before.is_whole and not self.again:
                    before.newest, judged = row.newest, True
                    self._tell(package, before, " (judged before)")
                    expected &= not before.status
                    continue
                print(f"{package.name} {row.version}: judging", flush=True)
                self._fill(package, row)
            except InstallError as error:
                print(f"{package.name}: not judged: {error}", flush=True)
                expected = False
                continue
            rows[package.key], judged = row, True
            write(self.folder / RESULTS, rows)
            self._tell(package, row)
            expected &= not row.status
        return expected and judged

    def _tell(self, package: Package | Source, row: Row, more: str = "") -> None:
        """Print a row, and where to read on if it is not as expected."""
        print(f"{words_of(package, row)}{more}", flush=True)
        if row.status:
            output = self.folder / package.key / "output.txt"
            print(f"  {row.verdict}\n  what it printed: {output}", flush=True)

    def not_here(self, package: Package | Source) -> str:
        """Return why a package is not judged here; "" if it is."""
        if isinstance(package, Source):
            return "" if os.environ.get(package.variable) else f"needs {package.needs}"
        return f"needs {package.needs}" if package.needs and self.device == "cpu" else ""

    def _planned(self, package: Package | Source) -> Row:
        if isinstance(package, Source):
            version = latest = package.judged
        else:
            version, latest = newest(package), newest(package, fitting=False)
        adapter = Path(__file__).parent / f"{package.key}.py"  # a package may bring its own
        text = (adapter.read_bytes() if adapter.exists() else b"") + __version__.encode()
        as_what = f", as {package.runs}" if self._emulated(package) else note_on(self.device)
        return Row(version, latest, self.device + as_what, self.profile, hashlib.sha256(text).hexdigest()[:16])

    def _emulated(self, package: Package | Source) -> list[str]:
        return package.emulated if self.device == "cpu" else []

    def _fill(self, package: Package | Source, row: Row) -> None:
        """Install a package and judge it. Raises InstallError."""
        sites = []
        if package.installed_for(row.version):
            sites = [installed(package, row.version, self.folder.resolve() / "site")]
        report = self.folder.resolve() / package.key
        report.mkdir(parents=True, exist_ok=True)
        results = report / "results.json"
        results.unlink(missing_ok=True)  # a run that ends early must not leave the results of an earlier one
        command = [
            sys.executable, "-m", "flash_attest", "check", package.key, "--profile", row.profile,
            "--device", self.device, "--here", f"--report={report}", f"--time-limit={self.time_limit:g}",
            *self._emulated(package),
        ]  # fmt: skip
        begun = time.monotonic()
        with open(report / "output.txt", "w", encoding="utf-8") as output:
            row.status = _status_of(command, with_paths(*sites), output, report)
        row.seconds = round(time.monotonic() - begun, 1)
        lines = (report / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        row.verdict = next((line for line in reversed(lines) if line.strip()), "nothing was printed")
        if row.is_whole and results.exists():
            laws = json.loads(results.read_text(encoding="utf-8"))["results"]
            kinds = Counter("known" if law["known"] else law["verdict"] for law in laws)
            row.counts, row.cases = {name: kinds[name] for name in COUNTS}, sum(law["cases"] for law in laws)


def _status_of(command: list[str], environment: dict[str, str], output: TextIO, folder: Path) -> int:
    """Run a command in a folder. Returns its exit status.

    It has a session of its own, so that Ctrl-C reaches it once, from here. An interruption of this
    process waits until the command has written its files and has ended its own processes.
    """
    process = subprocess.Popen(
        command, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOPPING)
        raise
    finally:
        if process.poll() is None:  # it does not end, or Ctrl-C was pressed again
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def with_paths(*folders: Path) -> dict[str, str]:
    """Return the environment of a process that can import this suite, and packages from folders.

    It does not read .pth files there, as it would where packages are installed, so what they add
    stands in the environment.
    """
    paths = [path for folder in folders for path in _paths_of(folder)]
    paths += [str(IMPORTED_FROM), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _paths_of(folder: Path) -> list[str]:
    if not any(folder.glob("*.pth")):
        return [str(folder)]
    code = "import site, sys; own = {*sys.path}; site.addsitedir(sys.argv[1]); print(*{*sys.path} - own, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def words_of(package: Package | Source, row: Row) -> str:
    """Return a row as a line."""
    counts = ", ".join(f"{number} {name}" for name, number in row.counts.items() if number) or row.verdict
    verdict = "NOT as expected" if row.status else "as expected"
    line = f"{package.name} {row.version}: {verdict}: {counts}; {row.seconds:g} s"
    news = [f"{row.version} is new: the findings are of {package.judged}"] if row.version != package.judged else []
    news += [f"{row.newest} is out: the adapter is for {package.versions}"] if row.newest != row.version else []
    return "; ".join([line, *news])


def write(path: Path, rows: dict[str, Row]) -> None:
    """Write rows. A reader sees the old file or the new one, complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({key: asdict(row) for key, row in sorted(rows.items())}, indent=1) + "\n")
    os.replace(unfinished, path)
