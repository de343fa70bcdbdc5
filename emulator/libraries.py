"""The emulator's own libraries, which do not depend on any kernel."""

from __future__ import annotations

from pathlib import Path

from flash_attest.emulator.cuda.build import host_sources
from flash_attest.emulator.errors import EmulatorError
from flash_attest.emulator.ptx import machine
from flash_attest.emulator.runtime import library


def compiled() -> list[Path]:
    """Return their paths in the cache, compiled if they were not.

    Those that cannot be compiled here are left out: who needs them gets the compiler's message.
    """
    files = []
    for sources in (library.SOURCES, machine.SOURCES, host_sources()):
        try:
            files.append(library.compiled_cpp(*sources))
        except EmulatorError:
            continue
    return files
