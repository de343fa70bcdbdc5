"""The tensors of a call, in memory that the runtime knows, and the observations that it made during
the call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from flash_attest.emulator.errors import EmulatorError
from flash_attest.emulator.observation import Observation
from flash_attest.emulator.runtime import watch
from flash_attest.emulator.runtime.arena import LARGE, Arena, Stored
from flash_attest.emulator.runtime.fresh import Fresh
from flash_attest.emulator.runtime.library import runtime
from flash_attest.emulator.runtime.records import take_observations

Dims = int | Sequence[int]

_arena = Arena()
# Only one call runs at a time, because the arena and the runtime hold the state of one call.
_lock = threading.RLock()


@dataclass
class CallMemory:
    """The storages of a call, and the address of each tensor."""

    storages: list[Stored]
    addresses: list[int]

    def take_observations(self) -> list[Observation]:
        """Return all observations since the last time."""
        return take_observations(dict(enumerate(self.storages)))


@contextmanager
def memory_of(tensors: list[tuple[str, torch.Tensor]]) -> Iterator[CallMemory]:
    """Yield memory for a call with these (name, tensor). Tensors are copied in before and copied
    back after it.

    Calls of other threads wait.
    """
    with _lock, _arena.holding(tensors) as (storages, addresses):
        runtime().emulator_begin_call()
        regions = [_add_region(number, stored) for number, stored in enumerate(storages)]
        fresh = watching.fresh if (watching := watch.current()) else Fresh()
        followed = [fresh.begin(region, s.source, s.nbytes) for region, s in zip(regions, storages, strict=True)]
        try:
            yield CallMemory(storages, addresses)
        finally:
            for region, storage in zip(regions, followed, strict=True):
                if storage is not None:
                    runtime().emulator_get_written(region, storage.written)
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


def refuse_large(who: str, storages: list[Stored], error: type[EmulatorError]) -> None:
    """Raise an error if a storage is too large to be traced. who: the caller, for the message."""
    for stored in storages:
        if not stored.margin:
            names = ", ".join(view.name for view in stored.views)
            raise error(
                f"{who}: {names}: its storage has {stored.nbytes} bytes, and the tracer, which records accesses to every "
                f"byte, takes at most {LARGE}: pass a copy of the part that is used"
            )


def raise_observed(
    who: str, observations: list[Observation], storages: list[Stored], error: type[EmulatorError]
) -> None:
    """Raise an error if an untraced call did something that stops it on a GPU, or wrote outside of
    its tensors.
    """
    if observations:
        raise error("\n".join(map(str, observations)))
    for stored in storages:
        if beside := stored.beside():
            raise error(f"{who} writes outside of its tensors: {beside}; trace() says where")


def three(what: str, sizes: Dims) -> ctypes.Array:
    """Return one to three sizes of a grid or a block as three sizes."""
    given = tuple(sizes) if isinstance(sizes, Sequence) else (sizes,)
    if not 1 <= len(given) <= 3 or not all(isinstance(n, int) and 0 <= n < 2**31 for n in given):
        raise ValueError(f"{what}={sizes!r}: should be one to three sizes")
    return (ctypes.c_uint * 3)(*given, *[1] * (3 - len(given)))
