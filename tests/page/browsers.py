"""Finds a browser for the tests, and installs one where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VARIABLE = "FLASH_ATTEST_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Without these Chromium asks the network for updates. Its sandbox needs rights that few
# containers have.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    "--renderer-process-limit=1", "--in-process-gpu",  # a page costs a quarter less
)  # fmt: skip
LIMIT = 300  # seconds for an installation
MISSING = f"""\
no browser was found, and none could be installed. Do one of these:
  install Chromium or Chrome, so that one of {", ".join(NAMES)} is on the PATH
  python -m playwright install chromium
  {VARIABLE}=/path/to/a/chromium"""


class NoBrowser(RuntimeError):
    """There is no browser. The text says what to do."""


def executable(playwright) -> str:
    """Return the path of a browser, which is installed if need be. Raises NoBrowser."""
    if named := os.environ.get(VARIABLE):
        if not Path(named).is_file():
            raise NoBrowser(f"{VARIABLE} is {named}: should be the path of a Chromium or Chrome")
        return named
    own = Path(playwright.chromium.executable_path)
    for install in (None, _by_playwright, _by_apt):
        if install:
            install()
        if there := next(filter(None, map(shutil.which, NAMES)), None):
            return there
        if own.is_file():
            return str(own)
    raise NoBrowser(MISSING)


def _by_playwright() -> None:
    _run(sys.executable, "-m", "playwright", "install", "chromium")


def _by_apt() -> None:
    """Install Debian's package, if this is Debian or one of its kin, and root runs it."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-y", "-qq", "chromium")


def _run(*command: str) -> None:
    """Run an installation. Whether it worked is seen by what is there afterwards."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(command, env=environment, timeout=LIMIT, check=False, stdout=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(command)} did not end within {LIMIT} s", file=sys.stderr)
