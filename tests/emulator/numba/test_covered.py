"""The engine runs Numba's code for every function of libdevice and float16, and for every atomic
operation and shuffle.

tests/emulator/ptx and the battery check the values; these tests check that no opcode is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from numba import cuda
from numba.cuda import libdevice, libdevicefuncs, types

from flash_attest.emulator.observation import Kind
from flash_attest.races.tracing import trace

DTYPES = {
    types.int16: torch.int16, types.int32: torch.int32, types.int64: torch.int64, types.float16: torch.float16,
    types.float32: torch.float32, types.float64: torch.float64, types.uint32: torch.uint32, types.uint64: torch.uint64,
}  # fmt: skip
CHUNK = 32  # lines of one kernel


def libdevice_lines() -> Iterator[str]:
    for name, (result, arguments) in libdevicefuncs.functions.items():
        given = ", ".join(f"{of(a.ty)}[{n}]" for n, a in enumerate(arguments) if not a.is_ptr)
        results = [result] * (result != types.void) + [a.ty for a in arguments if a.is_ptr]
        targets = ", ".join(f"{of(t)}[{8 + n}]" for n, t in enumerate(results))
        yield f"{targets}{',' if len(results) == 1 and result == types.void else ''} = libdevice.{name[5:]}({given})"


HALF = {
    1: "hneg habs hsin hcos hlog hlog2 hlog10 hexp hexp2 hexp10 hsqrt hrsqrt hceil hfloor hrcp htrunc hrint htanh",
    2: "hadd hsub hmul hdiv heq hne hge hgt hle hlt hmax hmin",
    3: "hfma",
}


def half_lines() -> Iterator[str]:
    for count, names in HALF.items():
        for name in names.split():
            yield f"float16s[8] = cuda.fp16.{name}({', '.join(f'float16s[{n}]' for n in range(count))})"


ATOMIC = {
    "add sub max min nanmax nanmin": "int32 int64 uint32 uint64 float32 float64",
    "and_ or_ xor exch cas": "int32 int64 uint32 uint64",
    "inc dec": "uint32 uint64",
}


def atomic_lines() -> Iterator[str]:
    for names, kinds in ATOMIC.items():
        for name in names.split():
            for kind in kinds.split():
                more = f", {kind}s[1]" if name == "cas" else ""
                yield f"{kind}s[8] = cuda.atomic.{name}({kind}s, 0, {kind}s[2]{more})"


def warp_lines() -> Iterator[str]:
    for kind in ("int32", "int64", "float32", "float64"):
        for name in ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync"):
            yield f"{kind}s[8] = cuda.{name}(-1, {kind}s[0], 1)"
        yield f"int32s[8] = cuda.match_any_sync(-1, {kind}s[0])"
        yield f"int32s[8], _ = cuda.match_all_sync(-1, {kind}s[0])"


def of(type_: types.Type) -> str:
    return f"{type_}s"


def chunks() -> Iterator[tuple[str, list[str]]]:
    for lines in (libdevice_lines, half_lines, atomic_lines, warp_lines):
        every = list(lines())
        for n in range(0, len(every), CHUNK):
            yield f"{lines.__name__.removesuffix('_lines')} {n}", every[n : n + CHUNK]


def first_of_each_kind():
    """Mark all but the first of each kind as thorough: each compiles dozens of functions."""
    for what, lines in chunks():
        yield pytest.param(what, lines, id=what, marks=() if what.endswith(" 0") else pytest.mark.thorough)


@pytest.mark.parametrize(("what", "lines"), list(first_of_each_kind()))
def test_nothing_is_missing(what: str, lines: list[str]):
    """One thread runs the functions. The run raises NotCovered if an opcode is missing, and nothing
    is found.
    """
    names = ", ".join(map(of, DTYPES))
    space = {"cuda": cuda, "libdevice": libdevice, "__name__": __name__}
    exec(compile(f"def kernel({names}):\n" + "".join(f"    {line}\n" for line in lines), f"<{what}>", "exec"), space)
    kernel = cuda.jit(space["kernel"])
    arrays = [torch.ones(16, dtype=dtype) for dtype in DTYPES.values()]
    kinds = {finding.kind for finding in trace(lambda: kernel[1, 32 if what.startswith("warp") else 1](*arrays))}
    assert kinds <= ({Kind.RACE} if what.startswith("warp") else set())  # its lanes store into one element


def test_there_is_much_to_cover():
    assert sum(len(lines) for _, lines in chunks()) > 400
