"""The cache of compiled files. Files are named by their content, built once by one process, and
visible only when complete.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from filelock import FileLock

from flash_attest.emulator.errors import EmulatorError


def cache_folder() -> Path:
    """Return the folder for compiled files: $FLASH_ATTEST_CACHE, else in the user's cache, else in
    the temporary folder.

    Raises EmulatorError if it cannot be written to.
    """
    *preferred, last = _folders()
    for folder in preferred:
        try:
            return _writable(folder)
        except EmulatorError:  # for example, the home folder is read-only
            continue
    return _writable(last)


def _folders() -> list[Path]:
    """Return the folders to use, best first."""
    if chosen := os.environ.get("FLASH_ATTEST_CACHE"):
        return [Path(chosen)]
    folders = [Path(tempfile.gettempdir()) / f"flash-attest-{os.getuid()}"]
    with contextlib.suppress(RuntimeError):  # if there is no home folder
        user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folders.insert(0, user / "flash-attest" / "cuda")
    return folders


@functools.cache
def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _mine(folder):
            raise PermissionError("it belongs to another user")
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise EmulatorError(
            f"{folder}, for compiled files, cannot be written to ({error}): name another in FLASH_ATTEST_CACHE"
        ) from error
    return folder


def _mine(folder: Path) -> bool:
    """Return whether the folder belongs to this user. Libraries that another user could have
    written are not loaded.
    """
    return folder.stat().st_uid == os.getuid()


def key_of(*parts: str | bytes) -> str:
    """Return a name that depends on the content of all parts."""
    digest = hashlib.sha256()
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


_known: dict[str, Path] = {}  # files of another cache, by name


def use(files: Iterable[Path]) -> None:
    """Make `built` use these files of another cache, which this process may not write to."""
    _known.update((file.name, file) for file in files)


_seconds = 0.0
while_compiling: Callable[[], AbstractContextManager] = contextlib.nullcontext  # a context for each block of `counted`


def seconds() -> float:
    """Return how many seconds this process has spent on compiling, or on waiting for another
    process that did.
    """
    return _seconds


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Add the duration of a block to `seconds`. If blocks are nested, only the outermost counts."""
    global _seconds
    before, start = _seconds, time.perf_counter()
    try:
        with while_compiling():
            yield
    finally:
        _seconds = before + time.perf_counter() - start


def built(key: str, make: Callable[[Path], None], suffix: str = ".so") -> Path:
    """Return the library (or other file) with this key. If it does not exist, call make(path) to
    build it.

    `path` is in a fresh folder. If several processes ask at the same time, one builds. The file is
    renamed when it is complete. A process that fails or is killed leaves only a temporary folder,
    which is never read.
    """
    if known := _known.get(f"{key}{suffix}"):
        return known
    for folder in _folders():  # including read-only ones
        made = folder / f"{key}{suffix}"
        if made.exists() and _mine(folder):
            return made
    path = cache_folder() / f"{key}{suffix}"
    with counted(), FileLock(cache_folder() / f"{key}.build.lock"):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
                made = Path(folder) / path.name
                make(made)
                os.replace(made, path)
    return path


def write(path: Path, text: str) -> None:
    """Write a file of the cache atomically: another process sees the old text or the new one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


def read_list(path: Path) -> list[str] | None:
    """Read a list written by `write`; None if there is none or it is incomplete."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
