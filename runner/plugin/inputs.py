"""Records what plug-ins could read when they were judged: files, and environment variables.

--resume keeps a verdict only if what concerns its plug-in (concerned.py) is the same. The files are
those below a plug-in's folder, and modules that it has loaded from elsewhere. A variable counts if
its name is quoted in one of the sources, or if it is of a kind that libraries for kernels read.
Names that a program puts together, and files elsewhere, are not found.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from flash_attest.runner.plugin import sources
from flash_attest.runner.plugin.folder import IN_USE
from flash_attest.runner.plugin.saved import JOURNAL, RESULTS

# The files of a folder -> those that concern a plug-in, and the words that these quote, which may
# be names of environment variables; None for all.
Concern = Callable[[set[str]], tuple[set[str], set[str] | None]]
MOST_FILES = 1000  # below one folder, the nearest first
LARGE = 1 << 18  # bytes; a larger file is compared by its size and the time of its last change
SKIPPED = {"__pycache__", "node_modules", IN_USE, JOURNAL}
# Variables of torch, of its libraries and of compilers, which may change what any call computes.
# Where something is cached changes nothing.
MATTER = re.compile(
    r"(?!\w*_CACHE(_DIR|_PATH)?$)(TRITON|CUDA|NVIDIA|NVCC|NVTE|TORCH|PYTORCH|ATEN|CUBLAS|CUDNN|NCCL|OMP|GOMP|KMP|MKL|OPENBLAS|DNNL|ONEDNN|NUMBA|XFORMERS"
    r"|XLA|FLASH(?!_ATTEST))\w*|LD_(LIBRARY_PATH|PRELOAD)|CC|CXX|C(XX)?FLAGS|PYTHONHASHSEED"
)
QUOTED = re.compile(rb"[\"'\0]([A-Za-z_]\w+)(?=[\"'\0])")
IN_SOURCES = {".py", ".pyx", ".c", ".cc", *sources.KERNELS}
PRINTED = re.compile(rb"^flash-attest: judges ", re.MULTILINE)  # in what a run prints, which may be kept in a file


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may change any verdict: name -> digest of the value, which may be a
    secret.
    """
    return _digests(environ, (name for name in environ if MATTER.fullmatch(name)))


def by_folder(files: Mapping[str, set[Path]], environ: Mapping[str, str], without: Collection[Path]) -> dict[str, dict]:
    """Return what plug-ins could read: folder -> {"files": {name: digest}, "variables": {name:
    digest}, "more": whether the folder has more files than are compared}.

    files: of each plug-in, what sources.files_of_plugin returns. without: files and folders that
    the run writes.
    """
    folders: dict[Path, set[Path]] = {}
    for file, imported in files.items():
        if os.path.isfile(file):
            folders.setdefault(Path(file).resolve().parent, set()).update(imported)
    skipped = {*map(os.path.realpath, without)}
    # Modules may be imported by a name that no source has.
    elsewhere = {path for path in sources.loaded() if folders.keys().isdisjoint(path.parents)} if folders else set()
    return {str(folder): _record(folder, known | elsewhere, environ, skipped) for folder, known in folders.items()}


def difference(then: object, now: Mapping, concern: Concern = lambda names: ({*names}, None)) -> str:
    """Return what differs between two records of a folder, such as "weights.bin has changed"; ""
    if nothing does.

    concern: see `Concern`; by default every difference counts.
    """
    differ: dict[str, dict[str, str]] = {"files": {}, "variables": {}}
    for kind, words in (("files", "{}"), ("variables", "the environment variable {}")):
        before, after = then.get(kind) if isinstance(then, Mapping) else None, now[kind]
        if not isinstance(before, Mapping):
            return f"the earlier run has no record of its {kind}"
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                does = "is new" if name not in before else "is gone" if name not in after else "has changed"
                differ[kind][name] = f"{words.format(name)} {does}"
    if not any(differ.values()):
        return ""
    files, quoted = concern({*then["files"], *now["files"]})
    counts = [words for name, words in differ["files"].items() if name in files]
    counts += [words for name, words in differ["variables"].items() if quoted is None or name in quoted]
    return next(iter(counts), "")


def _record(folder: Path, known: set[Path], environ: Mapping[str, str], skipped: Collection[str]) -> dict:
    below, more = ([], False) if sources.is_elsewhere(folder / "any.py") else _below(folder, skipped)
    files, quoted = {}, set()
    for file in sorted(known | {*below}):
        if (state := _state(file, printed=file not in known)) is not None:
            name = str(file.relative_to(folder) if file.is_relative_to(folder) else file)
            files[name], words = state
            quoted |= words
    return {"files": files, "variables": _digests(environ, quoted & environ.keys()), "more": more}


def _below(folder: Path, skipped: Collection[str]) -> tuple[list[Path], bool]:
    """Return the files below a folder, the nearest first, and whether there are more of them."""
    files: list[Path] = []
    written, folders = {*_written()}, deque([folder])
    while folders:
        entries = _entries(folders.popleft())
        if len(entries) > 1 and {RESULTS, "index.html"} <= {entry.name for entry in entries}:  # a report
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in SKIPPED or os.path.realpath(entry.path) in skipped:
                continue
            with contextlib.suppress(OSError):  # it has vanished, or is a link to nowhere
                there = entry.stat()
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in sources.PACKAGES and not os.path.exists(f"{entry.path}/pyvenv.cfg"):
                        folders.append(Path(entry.path))
                elif entry.is_file() and (there.st_dev, there.st_ino) not in written:
                    if len(files) == MOST_FILES:
                        return files, True
                    files.append(Path(entry.path))
    return files, False


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _written() -> Iterator[tuple[int, int]]:
    """Yield the files that this process has open for writing, such as the one to which it
    prints.
    """
    for descriptor in map(int, os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else (1, 2):
        with contextlib.suppress(OSError):
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                there = os.fstat(descriptor)
                yield there.st_dev, there.st_ino


def _state(file: Path, *, printed: bool) -> tuple[str, set[str]] | None:
    """Return a digest of a file, and the words that its source quotes.

    printed: return None for a file with what a run has printed.
    """
    try:
        there = file.stat()
        if there.st_size > LARGE:
            return _digest(f"{there.st_size} {there.st_mtime_ns}".encode()), set()
        content = file.read_bytes()
    except OSError as error:
        return str(error.strerror), set()
    if printed and PRINTED.search(content):
        return None
    words = {word.decode() for word in QUOTED.findall(content)} if file.suffix in IN_SOURCES else set()
    return _digest(content), words


def _digests(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: _digest(environ[name].encode(errors="surrogateescape")) for name in sorted(names)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
