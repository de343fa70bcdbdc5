"""Which sources verdicts depend on, as digests: two runs with the same may be put together."""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from flash_attest.places import ROOMS as ROOT

ROOMS = ("oracle", "impls", "properties", "runner", "races", "emulator")  # what a verdict depends on
KERNELS = (".cu", ".cuh", ".cpp", ".h", ".hpp", ".ptx", ".so")
INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))
# The folders of installed packages in other environments on the path, as with venv --system-site-packages.
PACKAGES = {"site-packages", "dist-packages"}


def is_ours(file: str) -> bool:
    """Whether a file is one of the suite, as far as verdicts depend on it."""
    path = Path(file).resolve()
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS


def in_checkout(file: str) -> bool:
    """Whether a file lies in the checkout; an environment in it, such as .tox, is elsewhere."""
    path = Path(file).resolve()
    return path.is_relative_to(ROOT) and PACKAGES.isdisjoint(path.relative_to(ROOT).parts)


def shown(file: str) -> Path:
    """A file as messages name it: in the checkout from its root."""
    path = Path(file).resolve()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(file)


def of_suite() -> str:
    """The digest of the suite, our implementations among it."""
    files = [file for room in ROOMS for file in _sources_in(ROOT / room)]
    return _digest(files, ROOT)


def of_ours(file: str) -> str:
    """The digest of one of our implementations: its file, or its package."""
    path = Path(file)
    return _digest([path] if path.is_file() else _sources_in(path), ROOT)


def of_plugin(file: str) -> str:
    """The digest of a plug-in's file, of what it imports (but the suite and what is installed), and of C++ beside these.

    What it imports is in its text, as a number leaves no trace in the module that imported it, and among its globals. If it
    is imported in another process only, all Python files beside it count, too.
    """
    found = {Path(file).resolve()}
    waiting = [module for module in list(sys.modules.values()) if _file_of(module) in found]
    if not waiting:
        found |= set(Path(file).resolve().parent.glob("*.py"))
    while waiting:
        for module in _modules_in(waiting.pop()):
            path = _file_of(module)
            if path not in found and path is not None and not _elsewhere(path):
                found.add(path)
                waiting.append(module)
    found |= _imported({*found}, Path(file).resolve().parent)
    beside = {kernel for path in found for kernel in path.parent.glob("*") if kernel.suffix in KERNELS}
    return _digest(found | beside, Path(file).resolve().parent)


def _imported(files: set[Path], base: Path) -> set[Path]:
    """The files below `base` that these import, as their text says, and what those import."""
    found: set[Path] = set()
    while files := files - found:
        found |= files
        named = {base_.joinpath(*name.split(".")) for file in files for base_, name in _names_in(file, base)}
        files = {path for name in named for path in (name.with_suffix(".py"), name / "__init__.py") if path.is_file()}
    return found


def _names_in(file: Path, base: Path) -> Iterable[tuple[Path, str]]:
    """(folder, dotted name) of whatever a file may import from there: of a.b.c also a and a.b."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # importing it raises the error
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names, folder = [alias.name for alias in node.names], base
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else base
            names = [".".join(filter(None, (node.module, alias.name))) for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from ((folder, ".".join(parts[:n])) for n in range(1, len(parts) + 1))


def _sources_in(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.suffix in (".py", *KERNELS)]


def _modules_in(module: ModuleType) -> Iterable[ModuleType]:
    """The modules that a module's globals are, or come from."""
    for value in list(vars(module).values()):
        try:
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        except Exception:  # an object that finds its attributes itself
            continue
        if isinstance(name, str) and isinstance(sys.modules.get(name), ModuleType):
            yield sys.modules[name]


def _file_of(module: object) -> Path | None:
    file = getattr(module, "__file__", None)
    return _resolved(file) if isinstance(file, str) else None


@functools.cache
def _resolved(file: str) -> Path:
    """Kept, as each plug-in asks for the files of thousands of modules, and each answer is some system calls."""
    return Path(file).resolve()


def _elsewhere(path: Path) -> bool:
    """Whether it is the suite's, whose digest is of_suite, or installed, and has a version."""
    installed = any(path.is_relative_to(folder) for folder in INSTALLED) or not PACKAGES.isdisjoint(path.parts)
    return installed or is_ours(str(path))


def _digest(files: Iterable[Path], base: Path) -> str:
    """Of names, relative to `base`, and contents."""
    made = hashlib.sha256()
    for name, file in sorted(
        (str(file.relative_to(base) if file.is_relative_to(base) else file), file) for file in files
    ):
        try:
            content = file.read_bytes()
        except OSError:  # what named it says so itself
            content = b""
        made.update(f"{name} {len(content)}\n".encode(errors="backslashreplace") + content)
    return made.hexdigest()[:16]
