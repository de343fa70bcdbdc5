"""Importing this has a GPU emulated in this process as soon as it imports torch, before anything asks torch for one.

    pytest -p flash_attest.emulated tests/

`flash-attest emulate` imports it, also in the processes that a program starts (at_start/). Importing it takes milliseconds.
With FLASH_ATTEST_TRACE, a folder, every launch is traced into it.
"""

from __future__ import annotations

import os

from flash_attest.emulator.importing import when_imported

TRACE_TO = "FLASH_ATTEST_TRACE"


def _begin() -> None:
    from flash_attest.emulation import emulate  # here, as few of the processes that a program starts import torch

    if emulate() and (folder := os.environ.get(TRACE_TO)):
        from flash_attest.races import recording

        recording.start(folder)


def pytest_report_header() -> str:
    return "flash-attest: where there is no GPU one is emulated: sm_80, with the CPU's memory"


when_imported("torch", _begin)
