"""Builds the package from the files that git tracks, and installs it in an environment without the
checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.places import ROOT

# Prefixes of variables that are set for this run and must not affect the environment.
NOT_INHERITED = ("PYTHON", "PYTEST", "HYPOTHESIS", "TOX", "VIRTUAL_ENV", "FLASH_ATTEST_ENTRY")
LIMIT = 600  # seconds for one command


class Installation:
    """An environment in a folder.

    Its commands see no GPU, so that they behave in the same way on every machine.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.root = folder / "env"
        self.archives = folder / "dist"
        self.constraints = folder / "constraints.txt"

    @property
    def wheel(self) -> Path:
        (file,) = self.archives.glob("*.whl")
        return file

    @property
    def sdist(self) -> Path:
        (file,) = self.archives.glob("*.tar.gz")
        return file

    def build(self) -> None:
        """Build the sdist, and the wheel from it.

        The source is a copy of the files that git tracks, as they are in the checkout. It includes
        uncommitted changes, but no file that was never added to git, so a build that needs such a
        file fails here.
        """
        source = self.folder / "source"
        for name in _output("git", "ls-files", "-z", folder=ROOT).split("\0"):
            if name and os.path.lexists(ROOT / name):
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
        _output(sys.executable, "-m", "build", "--outdir", str(self.archives), str(source), folder=self.folder)
        # The versions of CI. A constraint cannot have an extra.
        pinned = re.sub(r"\[[^\]]*\]", "", (source / "requirements.txt").read_text())
        self.constraints.write_text(pinned)
        shutil.rmtree(source)
        _output(sys.executable, "-m", "venv", "--without-pip", str(self.root), folder=self.folder)

    def install(self, *extras: str) -> None:
        """Install the wheel, with extras.

        Compiling all modules would take longer than all tests here.
        """
        wheel = f"{self.wheel}[{','.join(extras)}]" if extras else str(self.wheel)
        self.pip("install", "--quiet", "--no-compile", "-c", str(self.constraints), wheel)

    def pip(self, *arguments: str) -> str:
        """Run pip on the environment. Returns its output."""
        pip = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--python", str(self.root)]
        return _output(*pip, *arguments, folder=self.folder)

    def run(self, *command: object, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in a folder. stderr goes to stdout."""
        return self._run([*map(str, command)], folder, variables)

    def shell(self, line: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a line in a shell, as if a user had copied it to a terminal."""
        return self._run(["/bin/sh", "-c", line], folder, {})

    def environment(self) -> dict[str, str]:
        """Return the environment variables for commands of the environment."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
        path = os.pathsep.join([str(self.root / "bin"), os.environ.get("PATH", os.defpath)])
        return inherited | {"PATH": path, "COLUMNS": "200", "CUDA_VISIBLE_DEVICES": ""}

    def _run(self, command: list[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        # Look the program up here: subprocess would use the PATH of this process, which has another
        # pytest.
        program = shutil.which(command[0], path=self.environment()["PATH"]) or command[0]
        return subprocess.run(
            [program, *command[1:]], cwd=folder, env=self.environment() | variables, text=True, timeout=LIMIT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip


def replay_of(printed: str) -> str:
    """Return the line below the first "Replay" of an output."""
    lines = printed.splitlines()
    return lines[lines.index("Replay") + 1].strip()


def _output(*command: str, folder: Path) -> str:
    """Run a command, which must succeed. Returns its output."""
    process = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.returncode == 0, f"{' '.join(command)}\n{process.stdout}"
    return process.stdout
