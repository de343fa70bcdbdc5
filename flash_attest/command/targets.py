"""What `flash-attest check` is given: a file, a module, an installed package with an adapter, or one of our implementations.

A package registers its adapter as an entry point, whose value is the place of an Implementation or of a list of them:

    [project.entry-points."flash_attest.adapters"]
    my_package = "my_package.attest:IMPLS"
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from flash_attest.did_you_mean import did_you_mean

GROUP = "flash_attest.adapters"


class TargetError(ValueError):
    """A target that names nothing. The text says what to do."""


@dataclass
class Targets:
    """imported: what --impl-from is given. ours: names of our own implementations, not yet looked up."""

    imported: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # in which modules beside them are found, as by `python FILE.py`


def resolved(texts: list[str], untrusted: bool = False) -> Targets:
    """Say what targets are, without importing them. Raises TargetError."""
    found, known = Targets(), adapters()
    for text in texts:
        if is_file(text):
            found.imported.append(text)
            _existing(text)
            continue
        if ":" not in text and text not in known:
            found.ours.append(text)
            continue
        place = known.get(text, text)
        if untrusted:
            raise TargetError(f"{text}: --untrusted judges files: name FILE.py")
        found.folders.append(os.getcwd())
        found.imported.append(place)
    if found.ours and found.imported:
        raise TargetError(
            f"{', '.join(found.ours)} is one of our implementations, {found.imported[0]} is not: judge them in two runs"
        )
    if found.ours and untrusted:
        raise TargetError(f"{found.ours[0]}: --untrusted judges files: name FILE.py")
    return found


def is_file(text: str) -> bool:
    """Tell whether a target names a file, which need not exist."""
    path = text.rpartition(":")[0] if ".py:" in text else text
    return path.endswith(".py") or os.sep in path or Path(path).is_file()


def adapters() -> dict[str, str]:
    """Return the adapters of installed packages, by name, as MODULE:NAME."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def check_module(place: str) -> None:
    """Raise TargetError if there is no such module. Its packages are imported, it is not."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise TargetError(f"{place}: should be MODULE:NAME")
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        raise TargetError(f"{place}: there is no module {error.name}") from None
    if found is None:
        raise TargetError(f"{place}: there is no module {module}")


def problem_of(chosen: Targets, limit: float | None) -> str:
    """Return why a target could not be loaded, in a line; "" if all could."""
    from flash_attest.impls.contract import registry
    from flash_attest.runner.isolation import importing

    for place in chosen.imported:
        problem = importing.problem_of(place, limit or 0.0)
        entries = [importing.unloadable(place, problem)] if problem else registry.from_file(place)
        for entry in entries:
            if isinstance(entry.impl, registry.Unloadable):
                return entry.impl.problem.splitlines()[0]
    return ""


def unknown(name: str, ours: list[str]) -> str:
    """Return the line for a name that is none of ours, and of no adapter."""
    known = sorted([*ours, *adapters()])
    return (
        f"{name} is no file, no module (MODULE:NAME) and no known implementation{did_you_mean(name, known)} "
        f"(known: {', '.join(known)})"
    )


def _existing(text: str) -> Path:
    """Return the file of FILE.py or FILE.py:NAME. Raises TargetError if it does not exist."""
    path = Path(text)
    if not path.exists() and ":" in text:
        path = Path(text.rpartition(":")[0])
    if path.is_file():
        return path
    beside = [each.name for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
    raise TargetError(f"{text}: there is no file {path}{did_you_mean(path.name, beside)}")
