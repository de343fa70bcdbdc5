"""Converts the runtime's records (runtime.h) to Observations.

Addresses become source lines and elements of tensors.
"""

from __future__ import annotations

import ctypes
import linecache

from flash_attest.emulator.observation import (
    ALLOCATION,
    DYNAMIC_SHARED,
    STATIC_SHARED,
    Action,
    Apart,
    Kind,
    Observation,
    Side,
    Site,
    Space,
)
from flash_attest.emulator.runtime.arena import Stored
from flash_attest.emulator.runtime.library import runtime
from flash_attest.emulator.runtime.symbols import symbols_of

KINDS, ACTIONS = tuple(Kind), tuple(Action)  # indexed by the numbers of enum Kind and enum What
NOWHERE, GLOBAL, STATIC, DYNAMIC, MODULE, LOCAL, _PARAMETER = range(7)  # enum Space
SPACES = {
    NOWHERE: Space.NONE, GLOBAL: Space.GLOBAL, STATIC: Space.SHARED, DYNAMIC: Space.SHARED, MODULE: Space.GLOBAL,
    LOCAL: Space.LOCAL,
}  # fmt: skip


class RecordSide(ctypes.Structure):
    """The C++ struct Side; pc is 0 if file and line are known."""

    _fields_ = (
        ("what", ctypes.c_int), ("thread", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("pc", ctypes.c_uint64),
        ("file", ctypes.c_char_p), ("line", ctypes.c_int),
    )  # fmt: skip


class Record(ctypes.Structure):
    """The C++ struct Record."""

    _fields_ = (
        ("kind", ctypes.c_int), ("space", ctypes.c_int), ("region", ctypes.c_int), ("same_value", ctypes.c_int),
        ("copies", ctypes.c_int), ("apart", ctypes.c_int), ("owned", ctypes.c_int), ("owner", ctypes.c_uint * 3),
        ("offset", ctypes.c_int64), ("size", ctypes.c_uint64),
        ("count", ctypes.c_uint64), ("sides", ctypes.c_int), ("first", RecordSide), ("second", RecordSide),
        ("code", ctypes.c_uint64), ("library", ctypes.c_char_p), ("text", ctypes.c_char * 1024),
    )  # fmt: skip


def take_observations(storages: dict[int, Stored]) -> list[Observation]:
    """Return all records since the last time, as observations. `storages`: storages by the ids of
    their regions.
    """
    lib = runtime()
    lib.emulator_records.restype = ctypes.c_size_t
    lib.emulator_record.restype = ctypes.POINTER(Record)
    records = [lib.emulator_record(ctypes.c_size_t(i)).contents for i in range(lib.emulator_records())]
    wanted: dict[str, set[int]] = {}
    for record in records:
        for side in _sides(record):
            if side.pc:
                wanted.setdefault(record.library.decode(), set()).add(side.pc - record.code)
    for library, offsets in wanted.items():
        symbols_of(library).sites(offsets)  # all at once, so that addr2line runs once
    observations = [_observation(record, storages) for record in records if not _is_copied_value(record)]
    lib.emulator_forget_records()
    return observations


def _is_copied_value(record: Record) -> bool:
    """Return whether one line of one block wrote the same value twice, which is no race because
    threads may hold copies of a value.
    """
    if not record.copies or record.same_value != 1:
        return False
    first, second = (_site(record, side) for side in _sides(record))
    return (first.file, first.line) == (second.file, second.line)


def _sides(record: Record) -> list[RecordSide]:
    return [record.first, record.second][: record.sides]


def _observation(record: Record, storages: dict[int, Stored]) -> Observation:
    kind, space = KINDS[record.kind], SPACES[record.space]
    tensor, index, where = _place(record, storages)
    sides = [Side(ACTIONS[s.what], _site(record, s), tuple(s.thread), tuple(s.block)) for s in _sides(record)]
    detail = record.text.decode(errors="replace").strip()
    if kind is Kind.OUTSIDE and not detail:
        detail = f"{sides[0].what.value}s {record.size} bytes {where}"
    if kind is Kind.UNINITIALISED and record.space == GLOBAL and record.region in storages:
        detail = _of_torch_empty(storages[record.region], tensor)
    same = None if record.same_value < 0 else bool(record.same_value)
    first, second = (*sides, None, None)[:2]
    apart = Apart(record.apart) if record.apart else None
    owner = tuple(record.owner) if record.owned else None
    return Observation(kind, space, tensor, index, first, second, same, record.count, detail, apart, owner)


def _of_torch_empty(stored: Stored, name: str) -> str:
    view = next(view for view in stored.views if view.name == name)
    dtype = str(view.dtype).removeprefix("torch.")
    return f"read before anything wrote it\n{name} is {view.shape}, {dtype}, from torch.empty or similar"


def _place(record: Record, storages: dict[int, Stored]) -> tuple[str, tuple[int, ...] | None, str]:
    """Return (tensor or variable, index, location in words if the access is outside)."""
    offset, size = record.offset, max(record.size, 1)
    if record.space == NOWHERE:
        outside = KINDS[record.kind] is Kind.OUTSIDE
        return "", None, f"at address {offset & (2**64 - 1):#x}, where no tensor is" if outside else ""
    if record.space == LOCAL:
        return "", None, "in the local memory of another thread"
    if record.space == GLOBAL and record.region in storages:
        return _in_tensor(storages[record.region], offset, size)
    start = symbols_of(record.library.decode()).dynamic_start
    if record.space == DYNAMIC and (offset >= start or not start):
        return DYNAMIC_SHARED, ((offset - start) // size,), "beyond the bytes of the launch"
    if record.space == GLOBAL:
        return ALLOCATION, (offset // size,), "beyond its end" if offset >= 0 else "before its start"
    return _in_variable(record, offset, size)


def _in_variable(record: Record, offset: int, size: int) -> tuple[str, tuple[int, ...], str]:
    """Return the same three values for a shared or global variable.

    An access outside of variables is described by the variable before it.
    """
    symbols = symbols_of(record.library.decode())
    is_shared = record.space in (STATIC, DYNAMIC)
    variables = symbols.shared(record.space == DYNAMIC) if is_shared else symbols.module(record.region)
    known = [variable for variable in variables if not variable.guard]
    if KINDS[record.kind] is Kind.OUTSIDE:
        function = _site(record, record.first).function
        known = [v for v in known if v.end <= offset]
        known = [v for v in known if v.function == function] or known
    else:
        known = [v for v in known if v.start <= offset < v.end]
    if not known:
        name = STATIC_SHARED if is_shared else "a global variable"
        return name, (offset // size,), "beside every variable"
    near = max(known, key=lambda v: v.end)
    far = f"{offset - near.end} bytes" if offset > near.end else "right"
    return near.name, ((offset - near.start) // size,), f"{far} past the end of {near.name}"


def _in_tensor(stored: Stored, offset: int, size: int) -> tuple[str, tuple[int, ...] | None, str]:
    inside = [view for view in stored.views if view.start <= offset and offset + size <= view.end]
    if inside:
        return inside[0].name, inside[0].index_of(offset), "inside"
    over = [view for view in stored.views if view.start <= offset < view.end]
    if over:
        return over[0].name, None, f"across the end of {over[0].name}"
    below = [view for view in stored.views if view.end <= offset]
    if below:
        view = max(below, key=lambda view: view.end)
        far = f"{offset - view.end} bytes" if offset > view.end else "right"
        return view.name, None, f"{far} past the end of {view.name}, whose shape is {view.shape}"
    view = min(stored.views, key=lambda view: view.start)
    return view.name, None, f"{view.start - offset} bytes before the start of {view.name}"


def _site(record: Record, side: RecordSide) -> Site:
    if side.pc:
        library, offset = record.library.decode(), side.pc - record.code
        return symbols_of(library).sites({offset})[offset]
    file = side.file.decode() if side.file else ""
    return Site(file, side.line, "", linecache.getline(file, side.line).strip())
