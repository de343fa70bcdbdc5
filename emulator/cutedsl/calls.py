"""Calls a function that CuTe DSL compiled: its tensors are moved into the emulator's memory, and
its launches run there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flash_attest.emulator.cutedsl import library
from flash_attest.emulator.ptx.module import PtxError
from flash_attest.emulator.runtime import watch
from flash_attest.emulator.runtime.calls import memory_of, raise_observed, refuse_large


def called(ptx: str | None, tensors: Sequence[tuple[str, torch.Tensor]], call: Callable[[list[int]], Any]) -> Any:
    """Return call(addresses), which runs host code with tensors at these addresses.

    ptx: of the function. Raises what a launch raised, PtxError for an error that stops a kernel on
    a GPU, or hands the observations to the current watch.
    """
    watching = watch.current()
    with memory_of(list(tensors)) as memory:
        if watching:
            refuse_large("CuTe DSL", memory.storages, PtxError)
        try:
            with library.host_code(ptx):
                result = call(memory.addresses)
        finally:
            observations = memory.take_observations()
            if watching:
                watching.observe(observations)
        if not watching:
            raise_observed("CuTe DSL", observations, memory.storages, PtxError)
    return result
