"""Packages that people install, judged by the laws: an adapter for each, and what was found.

packages.py   every package: its versions, what is installed with it, where it runs; and the files
              of public repositories that are judged, though no package index has them
NAME.py       the adapter of a package: `flash-attest check sageattention` judges it
known.py      the form in which adapters list laws that are known to fail
findings/     one proof for each thing that is wrong: a script without this suite
findings.py   reads the proofs
page.py       writes docs/findings.md from them
install.py    installs a package into a folder of its own
judge.py      judges packages in turn: the command `flash-attest wild`

An adapter begins by asking for its package. If it is not installed, the verdict is "refused", and
the reason has the command that installs it:

    attention = module_of("sageattention", "sageattention.core")

An adapter of a file in a public repository asks for a folder on this machine:

    sdpa = file_of("executorch").sdpa

torch's own varlen_attn has no adapter here: it comes with torch, so that is impls/torch_varlen.py.
"""

from __future__ import annotations

import os
import site
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from types import ModuleType

from flash_attest.wild.packages import PACKAGES, SOURCES, Package, Source

__all__ = ["PACKAGES", "SOURCES", "Package", "Source", "file_of", "module_of", "version_of"]


def module_of(package: str, module: str) -> ModuleType:
    """Import a module of a package, as if there were a GPU. Returns the module.

    package: a name in PACKAGES. Raises NotInstalled, with the command that installs it, if it is
    not installed or if its version is one that the adapter does not fit. An error of the import
    itself is raised as it is.
    """
    # Imported here, as the command line imports this package and need not wait for torch.
    from packaging.specifiers import SpecifierSet

    from flash_attest.adapters import imported
    from flash_attest.impls.contract.record import NotInstalled

    wanted = PACKAGES[package]
    installed = version_of(package)
    if installed is None:
        raise NotInstalled(f"{wanted.name} is not installed: {wanted.pip_line}")
    if not SpecifierSet(wanted.versions).contains(installed, prereleases=True):
        raise NotInstalled(
            f"{wanted.name} {installed} is installed, the adapter is for {wanted.versions}: {wanted.pip_line}"
        )
    folder = folder_of(package)
    if folder not in (*site.getsitepackages(), site.getusersitepackages()):
        site.addsitedir(folder)  # reads .pth files, which flash-attn-4 needs
    return imported(module)


def file_of(source: str) -> ModuleType:
    """Import the module of a public repository, as if there were a GPU. Returns the module.

    source: a name in SOURCES. Raises NotInstalled, with the variable to set, if it is not set, and
    ImportError if its folder does not have the module. Another error of the import is raised as it
    is.
    """
    from flash_attest.adapters import imported
    from flash_attest.impls.contract.record import NotInstalled

    wanted = SOURCES[source]
    folder = os.environ.get(wanted.variable)
    if not folder:
        raise NotInstalled(f"{wanted.repository} is on no package index: set {wanted.variable} to {wanted.place}")
    sys.path.insert(0, folder)
    try:
        return imported(wanted.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{wanted.module}.".startswith(f"{error.name}."):
            raise
        raise ImportError(f"{wanted.variable} is {folder}, should be {wanted.place}: has no {error.name}") from None
    finally:
        sys.path.remove(folder)


def version_of(package: str) -> str | None:
    """Return the installed version of a package in PACKAGES, or None."""
    try:
        return version(PACKAGES[package].name)
    except PackageNotFoundError:
        return None


def folder_of(package: str) -> str:
    """Return the folder in which a package in PACKAGES is installed."""
    return str(distribution(PACKAGES[package].name).locate_file(""))
