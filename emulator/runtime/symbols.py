"""The variables, kernels and source lines of a compiled library, from its symbols and debug
information.

Engines that do not use g++'s libraries have their own `Symbols`, registered by the name that
records give.
"""

from __future__ import annotations

import ctypes
import functools
import linecache
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from flash_attest.emulator.observation import Site
from flash_attest.emulator.runtime.library import runtime

# Lines of headers in this folder are the emulator's, not the author's.
EMULATOR = str(Path(__file__).resolve().parents[1])
OWN_NAMES = re.compile(r"N8emulator|emulator_cuda_")  # symbols of namespace emulator, and of the appended table


@dataclass(frozen=True)
class Variable:
    """A variable with its name, its function and its offsets.

    The offsets are in the TLS block if it is shared memory, and otherwise in the library.
    """

    start: int
    end: int
    name: str
    function: str = ""  # demangled; "" for a variable of a file or namespace
    at: int = 0  # offset of the variable's function
    guard: bool = False  # the compiler's flag that a constructor has run


class LibraryVariable(ctypes.Structure):
    """The C++ struct Variable of runtime.h."""

    _fields_ = (
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("kernel", ctypes.c_uint64),
        ("guard", ctypes.c_int),
    )


class Symbols(Protocol):
    """The questions that records.py can ask about the code that made a record."""

    dynamic_start: int  # offset of dynamic shared memory in the kernel's shared memory

    def sites(self, offsets: set[int]) -> dict[int, Site]:
        """Return the author's lines, by the offsets that records give."""

    def shared(self, dynamic: bool) -> list[Variable]:
        """Return the variables in the launch's shared memory (dynamic) or in the library's."""

    def module(self, region: int) -> list[Variable]:
        """Return the variables in global memory, by their offsets in a record's region."""


class Library:
    """The symbols of a library that g++ made."""

    dynamic_start = 0

    def __init__(self, path: str):
        self.path = path

    def sites(self, offsets: set[int]) -> dict[int, Site]:
        return sites(self.path, offsets)

    def shared(self, dynamic: bool) -> list[Variable]:
        return [] if dynamic else variables(self.path)[0]

    def module(self, region: int) -> list[Variable]:
        return variables(self.path)[1]


_registered: WeakValueDictionary[str, Symbols] = WeakValueDictionary()


def register(name: str, symbols: Symbols) -> None:
    """Use `symbols` to explain records of the code with this name, as long as that object
    exists.
    """
    _registered[name] = symbols


def symbols_of(name: str) -> Symbols:
    """Return the symbols for the name that a record gives: a library's path, or a registered
    name.
    """
    return _registered.get(name) or Library(name)


@functools.cache
def variables(library: str) -> tuple[list[Variable], list[Variable]]:
    """Return (shared variables, global variables)."""
    tls = {line.split()[-1] for line in _run("readelf", "-sW", library).splitlines() if " TLS " in line}
    symbols = [line.split() for line in _run("nm", "-S", library).splitlines()]
    symbols = [(int(s[0], 16), int(s[1], 16), s[2], s[3]) for s in symbols if len(s) == 4]
    plain = dict(
        zip((s[3] for s in symbols), _run("c++filt", input="\n".join(s[3] for s in symbols)).splitlines(), strict=True)
    )
    functions = {_encoding(name): (start, plain[name]) for start, _, kind, name in symbols if kind in "tTwW"}
    shared, other = [], []
    for start, size, kind, name in symbols:
        if kind not in "bBdDuVvrR" or OWN_NAMES.search(name):
            continue
        inside = re.match(r"_ZG?VZ|_ZZ", name)
        owner = (
            next((f for f in sorted(functions, key=len, reverse=True) if name[inside.end() :].startswith(f)), "")
            if inside
            else ""
        )
        at, function = functions.get(owner, (0, ""))
        variable = Variable(
            start, start + size, re.sub(r"^.*::|\.\d+$", "", plain[name]), function, at, name.startswith("_ZGV")
        )
        (shared if name in tls else other).append(variable)
    return shared, other


def _encoding(function: str) -> str:
    """Return a function's name in the form that the names of its static variables contain."""
    return f"{function[2:]}E" if function.startswith("_Z") else f"{len(function)}{function}E"


def base_name(function: str) -> str:
    """Return a function's name without its namespace and arguments: "void ns::scale<4>(float*)" ->
    "scale".
    """
    return re.split(r"[<(]", function, maxsplit=1)[0].strip().split(" ")[-1].split("::")[-1]


def register_variables(module: int, library: str, kernels: tuple[str, ...]) -> None:
    """Tell the runtime which variables of its library a module's kernels may access.

    module: the address of its struct Module.
    """
    shared, other = variables(library)
    owners = [variable.at if base_name(variable.function) in kernels else 0 for variable in shared]
    tables = (_table(shared, owners), _table(other, [0] * len(other)))
    arguments = [argument for table in tables for argument in (ctypes.c_size_t(len(table)), table)]
    runtime().emulator_variables(ctypes.c_void_p(module), *arguments)


def _table(variables: list[Variable], owners: list[int]) -> ctypes.Array:
    rows = [(v.start, v.end, owner, v.guard) for v, owner in zip(variables, owners, strict=True)]
    return (LibraryVariable * len(rows))(*rows)


_sites: dict[tuple[str, int], Site] = {}


def sites(library: str, offsets: set[int]) -> dict[int, Site]:
    """Map return addresses, as offsets in a library, to the author's lines.

    All unknown addresses are looked up by one run of addr2line.
    """
    fresh = sorted(offset for offset in offsets if (library, offset) not in _sites)
    # A return address belongs to the next instruction; the address minus one belongs to the call.
    answer = (
        _run("addr2line", "-e", library, "-a", "-i", "-f", "-C", *(hex(offset - 1) for offset in fresh))
        if fresh
        else ""
    )
    for stretch in re.split(r"^0x(?=[0-9a-f]+$)", answer, flags=re.MULTILINE)[1:]:
        address, *lines = stretch.splitlines()
        frames = [(f, *where.rsplit(":", 1)) for f, where in zip(lines[::2], lines[1::2], strict=False)]
        own = [frame for frame in frames if not frame[1].startswith((f"{EMULATOR}/", "/usr/", "??"))] or frames[-1:]
        function, file, line = own[0]
        number = int(re.match(r"\d*", line)[0] or 0)
        _sites[library, int(address, 16) + 1] = Site(file, number, function, linecache.getline(file, number).strip())
    return {offset: _sites.get((library, offset), Site("", 0)) for offset in offsets}


def _run(*command: str, input: str | None = None) -> str:
    return subprocess.run(command, input=input, capture_output=True, encoding="utf-8", errors="replace").stdout
