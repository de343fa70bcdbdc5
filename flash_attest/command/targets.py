"""Resolves the targets of `flash-attest check`.

A target is a file, a module, an installed package with an adapter, or one of our implementations. A
package registers its adapter as an entry point, whose value names an Implementation or a list of
them:

    [project.entry-points."flash_attest.adapters"]
    my_package = "my_package.attest:IMPLS"
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from flash_attest import python_file
from flash_attest.did_you_mean import did_you_mean
from flash_attest.wild.packages import PACKAGES, SOURCES, key_of

GROUP = "flash_attest.adapters"


class TargetError(ValueError):
    """A target does not exist. The message says what to do."""


@dataclass
class Targets:
    """imported: values for --impl-from.

    ours: names of our own implementations, not yet looked up.
    """

    imported: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # added to sys.path, as by `python FILE.py`


def resolved(texts: list[str], untrusted: bool = False) -> Targets:
    """Sort targets by kind, without importing them. Raises TargetError."""
    sorted_targets, known = Targets(), adapters()
    by_name = {key_of(name): name for name in known}
    for text in texts:
        if is_file(text):
            sorted_targets.imported.append(text)
            _check_file(text)
            continue
        text = text if text in known else by_name.get(key_of(text), text)
        if ":" not in text and text not in known:
            sorted_targets.ours.append(text)
            continue
        module = known.get(text, text)
        if untrusted:
            raise TargetError(f"{text}: --untrusted judges files: name FILE.py")
        sorted_targets.folders.append(os.getcwd())
        sorted_targets.imported.append(module)
    if sorted_targets.ours and sorted_targets.imported:
        raise TargetError(
            f"{', '.join(sorted_targets.ours)} is one of ours, {sorted_targets.imported[0]} is not: judge them in two runs"
        )
    if sorted_targets.ours and untrusted:
        raise TargetError(f"{sorted_targets.ours[0]}: --untrusted judges files: name FILE.py")
    return sorted_targets


def is_file(text: str) -> bool:
    """Return whether a target names a file, which need not exist."""
    path = text.rpartition(":")[0] if ".py:" in text else text
    return path.endswith(".py") or os.sep in path or os.path.isfile(path)


def adapters() -> dict[str, str]:
    """Return the adapters: name -> MODULE:NAME. They are those in wild/, and those that installed
    packages register, which come first.
    """
    return {key: f"flash_attest.wild.{key}:IMPLS" for key in (*PACKAGES, *SOURCES)} | {
        point.name: point.value for point in entry_points(group=GROUP)
    }


def check_module(place: str) -> None:
    """Raise TargetError if there is no such module. Imports the packages that contain it, but not
    the module.
    """
    module, _, name = place.partition(":")
    if not module or not name:
        raise TargetError(f"{place}: should be MODULE:NAME")
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        raise TargetError(f"{place}: there is no module {error.name}") from None
    if spec is None:
        raise TargetError(f"{place}: there is no module {module}")


def unknown(name: str, ours: list[str]) -> str:
    """Return a line about a name that is neither our implementation nor an installed adapter."""
    known = adapters()
    listed = sorted([*ours, *(name for name in known if name not in PACKAGES | SOURCES)])
    if os.path.isdir(name):
        return f"{name} is a folder: name a Python file in it"
    return (
        f"{name} is no file, no module (MODULE:NAME) and no known implementation"
        f"{did_you_mean(name, [*ours, *known])} (known: {', '.join(listed)}; packages: flash-attest wild --list)"
    )


def _check_file(text: str) -> None:
    """Raise TargetError if the file of FILE.py or FILE.py:NAME cannot be read."""
    path = Path(text)
    if not os.path.lexists(path) and ":" in text:
        path = Path(text.rpartition(":")[0])
    if problem := python_file.problem_of(path):
        raise TargetError(f"{text}: {problem}")
