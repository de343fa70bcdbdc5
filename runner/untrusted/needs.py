"""Says which files a kernel process needs, and hides what tells what is expected.

It sees its interpreter, the libraries, and the plug-in's folder. It sees neither the oracle, the
laws nor the tests, in a checkout or an installation, and no report.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from flash_attest.impls.contract.loading import file_of, module_of
from flash_attest.places import IN_CHECKOUT, PACKAGE, ROOMS
from flash_attest.runner.untrusted.view import View

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/sys",
    "/run/opengl-driver", *(f"/etc/{name}" for name in (
        "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime")),
)  # fmt: skip
# Files of flash_attest that hold what is expected, or say how it is judged.
HIDDEN_ROOMS = ("oracle", "properties", "runner", "mutants", "sweep", "bench", "tests", "docs", ".git")
# What a kernel process imports of these. If it imports more, no file loads under --untrusted until
# that stands here.
NEEDED = (
    "properties/__init__.py", "properties/machine/__init__.py", "properties/machine/gpus.py", "properties/state",
    "runner/__init__.py", "runner/descendants.py", "runner/untrusted",
)  # fmt: skip
ROOMS_NEEDED = ("impls", "emulator", "races")
REPORT = "results.json"  # a folder with this file is a report, with expected values
FINDERS = "__editable__"  # modules in which setuptools lists where editable installations lie
PATHS_OF_PYTHON = (
    "import json, sys; found = {str(p) for n, m in list(sys.modules.items()) if n.startswith('" + FINDERS + "')"
    " for p in getattr(m, 'MAPPING', {}).values()}; print(json.dumps([sys.path, sorted(found)]))"
)


def view_of(argument: str, writable: Sequence[str], reports: Iterable[str], libraries: Iterable[str]) -> View:
    """Return what the kernel process of a file sees.

    argument: of --impl-from. reports: folders, hidden. libraries: files that were compiled without
    the kernel's doing.
    """
    user = [*python_path(), *user_site(), *_folder_of(argument)]
    readable, hidden = [*SYSTEM, *_python(), *user, *_ours()], [*_rooms()]
    if prefix := sys.pycache_prefix:  # it holds the compiled modules of all folders, by their paths
        readable, hidden = (
            [*paths, *(os.path.join(prefix, path.lstrip("/")) for path in paths)] for paths in (readable, hidden)
        )
    readable += libraries
    hidden += [*reports, *_reports(user)]
    if module_of(argument) is None:
        readable.append(os.path.abspath(file_of(argument)[0]))  # also if its folder is a report
    return View(_existing(readable), _existing(hidden), tuple(writable), os.getcwd())


def python_path() -> list[str]:
    """Return the folders of PYTHONPATH, which an isolated Python ignores."""
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return [path for path in paths if os.path.isdir(path) and Path(path).resolve() not in (PACKAGE.parent, ROOMS)]


def user_site() -> list[str]:
    """Return the user's folder of packages, which an isolated Python ignores."""
    folder = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    return [folder] if os.path.isdir(folder) else []


def _folder_of(argument: str) -> list[str]:
    if module_of(argument) is not None:  # it lies on Python's path
        return []
    return [str(file_of(argument)[0].resolve().parent), os.path.dirname(os.path.abspath(file_of(argument)[0]))]


@functools.cache
def _python() -> tuple[str, ...]:
    """Return where the interpreter, its packages and compilers lie."""
    asked = subprocess.run(
        [sys.executable, "-I", "-c", PATHS_OF_PYTHON], capture_output=True, text=True, timeout=60, check=False
    )
    on_path, editable = json.loads(asked.stdout.splitlines()[-1]) if asked.returncode == 0 else (sys.path, [])
    roots = {str(PACKAGE.parent), str(ROOMS)} if IN_CHECKOUT else set()
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, *editable]
    paths += [path for path in on_path if path and os.path.realpath(path) not in roots]
    link = sys.executable
    while link not in paths:  # each link on the way to the interpreter
        paths.append(link)
        if os.path.islink(link):
            link = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
    paths += [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX") if os.environ.get(name)]
    paths += [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    if compiler := shutil.which(os.environ.get("CXX", "c++")):
        paths.append(compiler)
    return tuple(path for path in paths if path != "/" and os.path.abspath(path) != os.path.expanduser("~"))


def _ours() -> list[str]:
    """Return what a kernel process needs of this package."""
    files = [*PACKAGE.glob("*.py"), *(ROOMS / name for name in NEEDED if name.endswith(".py"))]
    compiled = [importlib.util.cache_from_source(str(file)) for file in files]
    rooms = [ROOMS / name for name in (*ROOMS_NEEDED, *(name for name in NEEDED if not name.endswith(".py")))]
    links = [PACKAGE] if IN_CHECKOUT else []  # by which the rooms are imported
    return [*map(str, files), *compiled, *map(str, [*rooms, *links])]


def _rooms() -> list[str]:
    whole = [str(ROOMS / name) for name in HIDDEN_ROOMS]
    return whole if IN_CHECKOUT else [str(PACKAGE)]


def _reports(folders: Iterable[str]) -> list[str]:
    """Return reports of earlier runs that lie in these folders."""
    found = []
    for folder in folders:
        with contextlib.suppress(OSError):
            found += [entry.path for entry in os.scandir(folder) if os.path.isfile(os.path.join(entry.path, REPORT))]
    return found


def _existing(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that exist, each also without links in it."""
    absolute = dict.fromkeys(os.path.abspath(path) for path in paths if path)
    both = [way for path in absolute if os.path.exists(path) for way in (path, os.path.realpath(path))]
    return tuple(dict.fromkeys(both))
