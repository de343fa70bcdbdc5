"""Installs a package into a folder of its own, with pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from flash_attest.wild.packages import Package, Source

PIP = (sys.executable, "-m", "pip")
VERSIONS = "Available versions:"  # before the line of `pip index versions` that has all of them
PATIENCE = 900.0  # seconds for one call of pip


class InstallError(RuntimeError):
    """pip has failed. The message has its last line."""


def newest(package: Package, *, fitting: bool = True) -> str:
    """Return the newest version on the index. Raises InstallError.

    fitting: only of the versions that the adapter fits.
    """
    wanted = SpecifierSet(package.versions)
    # `pip install --dry-run` would download and run the source of a package without wheels.
    printed = _pip("index", "versions", *(["--pre"] if wanted.prereleases else []), package.name)
    there = next((line for line in printed.splitlines() if line.startswith(VERSIONS)), "").removeprefix(VERSIONS)
    found = [version.strip() for version in there.split(",") if version.strip()]
    if fitting:
        found = [version for version in found if wanted.contains(version)]
    if not found:
        raise InstallError(f"the index has no version of {package.requirement if fitting else package.name}")
    return max(found, key=Version)


def installed(package: Package | Source, version: str, folder: Path) -> Path:
    """Install a version, and what it needs, below a folder. Returns the folder to import it from.
    Of a Source, install only what it needs.

    Does nothing if it is there already. Raises InstallError.
    """
    target = folder / f"{package.key}-{version}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):  # the proofs of a package run at the same time, and one of them installs it
        if target.is_dir():
            return target
        unfinished = folder / f"{target.name}.unfinished"  # a run that is interrupted leaves no half of a package
        shutil.rmtree(unfinished, ignore_errors=True)
        options = ["--quiet", "--no-deps", "--no-compile", "--target", str(unfinished)]
        _pip("install", *options, *package.installed_for(version))
        os.replace(unfinished, target)
    return target


def _pip(*arguments: str) -> str:
    """Run pip. Returns what it prints. Raises InstallError."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    try:
        done = subprocess.run(
            [*PIP, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"pip {arguments[0]} takes longer than {PATIENCE:g} s") from None
    if done.returncode:
        lines = (
            [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines() or [""]
        )
        offline = "; pip could not reach the index" if "WARNING: Retrying" in done.stderr else ""
        raise InstallError(f"pip {arguments[0]} {arguments[-1]}: {lines[-1].removeprefix('ERROR: ')}{offline}")
    return done.stdout
