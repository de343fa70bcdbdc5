"""Imports point one way, from room to room (CONTRIBUTING.md)."""

import ast

import pytest

from tests.places import ROOT

# The rooms that a room may import. The door, flash_attest/, imports every room.
MAY = {
    "emulator": set(),
    "oracle": set(),
    "races": {"emulator"},
    "impls": {"emulator"},
    "properties": {"oracle", "impls", "races", "emulator"},
    "runner": {"properties", "oracle", "impls", "races", "emulator"},
}
# Adapters of packages are written as users write them.
MAY["wild"] = {
    "runner",
    *MAY["runner"],
    "adapters",
    "emulation",
    "notation",
    "__version__",
    "Absent",
    "Implementation",
    "Precision",
    "KnownFailure",
    "Supports",
}
MAY |= {room: {"runner", *MAY["runner"]} for room in ("mutants", "sweep", "bench")}
# Modules of the door that import no room. Every room may import them.
LIGHT = {"arguments", "did_you_mean", "interrupted", "packages", "places", "python_file", "required", "texts"}


def imported(room: str) -> dict[str, str]:
    """Return the parts of this package that a room imports -> the first file that imports them."""
    files: dict[str, str] = {}
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                package, _, inner = name.partition(".")
                if package == "flash_attest" and inner:
                    files.setdefault(inner.partition(".")[0], str(path.relative_to(ROOT)))
    return files


@pytest.mark.parametrize("room", MAY)
def test_a_room_imports_only_what_is_below_it(room):
    allowed = MAY[room] | {room} | (LIGHT if room != "emulator" else set())
    assert {part: file for part, file in imported(room).items() if part not in allowed} == {}
