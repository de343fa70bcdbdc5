"""The tensors of one call, in memory that the runtime knows; and what it observed during the call."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from emulator.observation import Observation
from emulator.runtime.arena import Arena, Stored
from emulator.runtime.library import runtime
from emulator.runtime.records import take_observations

_arena = Arena()
_lock = threading.RLock()  # one call at a time: the arena and the runtime hold the state of one


@dataclass
class CallMemory:
    """The storages of a call, and the address of each tensor."""

    storages: list[Stored]
    addresses: list[int]

    def take_observations(self) -> list[Observation]:
        """All observations since the last time."""
        return take_observations(dict(enumerate(self.storages)))


@contextmanager
def memory_of(tensors: list[tuple[str, torch.Tensor]]) -> Iterator[CallMemory]:
    """Memory for a call with these (name, tensor): copied in before, copied back after. Calls of other threads wait."""
    with _lock, _arena.holding(tensors) as (storages, addresses):
        runtime().emulator_begin_call()
        regions = [_add_region(number, stored) for number, stored in enumerate(storages)]
        try:
            yield CallMemory(storages, addresses)
        finally:
            for region in regions:
                runtime().emulator_remove_storage(region)


def _add_region(number: int, stored: Stored) -> ctypes.c_void_p:
    lib = runtime()
    lib.emulator_add_storage.restype = ctypes.c_void_p
    address, nbytes, margin = (
        ctypes.c_void_p(stored.address),
        ctypes.c_size_t(stored.nbytes),
        ctypes.c_size_t(stored.margin),
    )
    region = ctypes.c_void_p(lib.emulator_add_storage(address, nbytes, margin, number, stored.width))
    for view in stored.views:
        lib.emulator_add_span(region, ctypes.c_size_t(view.start), ctypes.c_size_t(view.end))
    return region
