"""Computes digests of the sources that verdicts depend on. Reports with equal digests can be
merged.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from flash_attest.impls.contract.loading import MODULES
from flash_attest.places import ROOMS as ROOT

ROOMS = ("oracle", "impls", "properties", "runner", "races", "emulator")  # verdicts depend on these
KERNELS = (".cu", ".cuh", ".cpp", ".h", ".hpp", ".ptx", ".so")
INSTALLED = tuple(os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "purelib", "platlib"))
# Package folders of other environments on the path, for example of venv --system-site-packages.
PACKAGES = {"site-packages", "dist-packages"}


def is_ours(file: str) -> bool:
    """Return whether a file belongs to the part of the suite that verdicts depend on."""
    path = _resolved(file)
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS


def in_checkout(file: str) -> bool:
    """Return whether a file lies in the checkout, but not in an environment inside the checkout
    such as .tox.
    """
    path = _resolved(file)
    return path.is_relative_to(ROOT) and PACKAGES.isdisjoint(path.relative_to(ROOT).parts)


def shown(file: str) -> Path:
    """Return a file's name for messages: relative to the root if it lies in the checkout."""
    path = _resolved(file)
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(file)


def of_suite() -> str:
    """Return the digest of the suite, including our implementations."""
    files = [file for room in ROOMS for file in _sources_in(ROOT / room)]
    return _digest(files, ROOT)


def of_ours(file: str) -> str:
    """Return the digest of the file or package of one of our implementations."""
    path = Path(file)
    return _digest([path] if path.is_file() else _sources_in(path), ROOT)


def of_plugin(file: str, files: set[Path] | None = None) -> str:
    """Return the digest of a plug-in's files. files: what `files_of_plugin` returns."""
    return _digest(files_of_plugin(file) if files is None else files, Path(file).resolve().parent)


def files_of_plugin(file: str) -> set[Path]:
    """Return a plug-in's file, the modules that it imports, and the kernel files beside these.

    The suite and installed packages are left out. Imports are found in the source text and among
    the globals, because a number that was imported from a module does not name the module. If the
    file is imported only in another process, all Python files beside it count too.
    """
    files = {Path(file).resolve()}
    waiting = [module for module in list(sys.modules.values()) if _file_of(module) in files]
    if not waiting:
        files |= set(Path(file).resolve().parent.glob("*.py"))
    while waiting:
        for module in _modules_in(waiting.pop()):
            path = _file_of(module)
            if path not in files and path is not None and not is_elsewhere(path):
                files.add(path)
                waiting.append(module)
    files |= _imported({*files}, Path(file).resolve().parent)
    return files | {kernel for path in files for kernel in path.parent.glob("*") if kernel.suffix in KERNELS}


def _imported(files: set[Path], base: Path) -> set[Path]:
    """Return the files below `base` that these files import directly or indirectly, according to
    their text.
    """
    imported: set[Path] = set()
    while files := files - imported:
        imported |= files
        named = {base_.joinpath(*name.split(".")) for file in files for base_, name in _names_in(file, base)}
        files = {path for name in named for path in (name.with_suffix(".py"), name / "__init__.py") if path.is_file()}
    return imported


def _names_in(file: Path, base: Path) -> Iterable[tuple[Path, str]]:
    """Yield (folder, dotted name) of everything that a file may import; for a.b.c also a and
    a.b.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # importing the file reports it
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
    """Yield the modules among a module's globals, and the modules that define its globals."""
    for value in list(vars(module).values()):
        try:
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        except Exception:  # from an object's own __getattr__
            continue
        if isinstance(name, str) and isinstance(sys.modules.get(name), ModuleType):
            yield sys.modules[name]


def loaded(*, plug_ins: bool = True) -> set[Path]:
    """Return the files of all loaded modules outside of the checkout, the suite and installed
    packages. plug_ins: whether those that were loaded as plug-ins are among them.
    """
    modules = [(name, module) for name, module in list(sys.modules.items()) if plug_ins or not name.startswith(MODULES)]
    files = {_file_of(module) for _, module in modules} - {None}
    return {path for path in files if not is_elsewhere(path) and not in_checkout(str(path))}


def _file_of(module: object) -> Path | None:
    file = getattr(module, "__file__", None)
    return _resolved(file) if isinstance(file, str) else None


@functools.cache
def _resolved(file: str) -> Path:
    """Resolve a path once. Each plug-in asks for thousands of files, and resolving one takes
    several system calls.
    """
    return Path(os.path.realpath(file))


def is_elsewhere(path: Path) -> bool:
    """Return whether a file belongs to the suite, which of_suite covers, or to an installed
    package, which has a version.
    """
    file = str(path)
    return file.startswith(INSTALLED) or not PACKAGES.isdisjoint(path.parts) or is_ours(file)


def _digest(files: Iterable[Path], base: Path) -> str:
    """Return a digest of contents and of names relative to `base`."""
    digest = hashlib.sha256()
    for name, file in sorted(
        (str(file.relative_to(base) if file.is_relative_to(base) else file), file) for file in files
    ):
        try:
            content = file.read_bytes()
        except OSError:  # the code that names the file reports it
            content = b""
        digest.update(f"{name} {len(content)}\n".encode(errors="backslashreplace") + content)
    return digest.hexdigest()[:16]
