"""Where what is compiled is kept: named by what it was made of, made once by one process, and never there in part."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from emulator.errors import CudaError


def cache_folder() -> Path:
    """Where compiled files are kept: $FLASH_ATTEST_CACHE, else the user's cache, else the temporary folder.

    Raises CudaError if nothing can be written to what was named.
    """
    *preferred, last = _folders()
    for folder in preferred:
        try:
            return _writable(folder)
        except CudaError:  # a home that is read-only
            continue
    return _writable(last)


def _folders() -> list[Path]:
    """Where to look, best first."""
    if chosen := os.environ.get("FLASH_ATTEST_CACHE"):
        return [Path(chosen)]
    folders = [Path(tempfile.gettempdir()) / f"flash-attest-{os.getuid()}"]
    with contextlib.suppress(RuntimeError):  # there is no home
        user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folders.insert(0, user / "flash-attest" / "cuda")
    return folders


@functools.cache
def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _mine(folder):
            raise PermissionError("it is somebody else's")
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise CudaError(
            f"{folder}, for compiled files, cannot be written to ({error}): name another in FLASH_ATTEST_CACHE"
        ) from error
    return folder


def _mine(folder: Path) -> bool:
    """Whether nobody else can have put libraries there, which are not loaded."""
    return folder.stat().st_uid == os.getuid()


def key_of(*parts: str | bytes) -> str:
    """A name for what is made of these parts: where one of them changes, so does the name."""
    made = hashlib.sha256()
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        made.update(len(part).to_bytes(8, "little") + part)
    return made.hexdigest()[:32]


def built(key: str, make: Callable[[Path], None]) -> Path:
    """The library of that key; if it is not there, make(path) makes it at a path in a fresh folder.

    Of all processes that ask at the same time one makes it. It gets its name when it is whole; what a failed or killed one
    leaves behind is a temporary folder that nobody looks into.
    """
    for folder in _folders():  # also where nothing can be written to
        made = folder / f"{key}.so"
        if made.exists() and _mine(folder):
            return made
    path = cache_folder() / f"{key}.so"
    with FileLock(cache_folder() / f"{key}.build.lock"):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
                made = Path(folder) / path.name
                make(made)
                os.replace(made, path)
    return path
