"""Emulates a GPU in the process that imports this, once it imports torch.

    pytest -p flash_attest.emulated tests/

`flash-attest emulate` imports it, also in the processes that a program starts (at_start/).
Importing it takes milliseconds. If FLASH_ATTEST_TRACE names a folder, every launch is traced into
it. FLASH_ATTEST_EMULATED names the GPU: 80 or 90.
"""

from __future__ import annotations

import os

from flash_attest.emulator import devices
from flash_attest.emulator.importing import when_imported

TRACE_TO = "FLASH_ATTEST_TRACE"


def _begin() -> None:
    from flash_attest.emulation import emulate  # imported here, because few of a program's processes import torch

    if emulate() and (folder := os.environ.get(TRACE_TO)):
        from flash_attest.races import recording

        recording.start(folder)


def pytest_report_header() -> str:
    return f"flash-attest: without a GPU, one is emulated: sm_{devices.target()}, with the CPU's memory"


when_imported("torch", _begin)
