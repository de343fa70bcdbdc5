"""The memory of a module's .global and .const variables."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping

from flash_attest.emulator.errors import Refused
from flash_attest.emulator.ptx.syntax import Variable

ALIGNMENT = 256  # bytes, for every variable, as in a GPU's allocations


class Storage:
    """The .global and .const variables of a loaded module, in this process's memory while this
    object exists.

    declared: the text's variables. source: its name, for messages. Raises Refused if a variable
    holds an address in any other space.
    """

    def __init__(self, declared: Mapping[str, Variable], source: str):
        self._variables = {
            name: variable
            for name, variable in declared.items()
            if variable.space in ("global", "const") and not variable.extern
        }
        self._memory = {
            name: _aligned(max(variable.size, 1), max(variable.align, ALIGNMENT))
            for name, variable in self._variables.items()
        }
        # This comes last, because a variable may hold the address of a variable that is declared
        # after it.
        for name, variable in self._variables.items():
            values = (variable.values or b"")[: variable.size]
            ctypes.memmove(self.address(name), values, len(values))
            for at, symbol in variable.addresses:
                if symbol.name not in self._memory:
                    raise Refused(f"{name} holds the address of {symbol.name}", source, variable.line)
                held = struct.pack("<Q", self.address(symbol.name) + symbol.offset)
                ctypes.memmove(self.address(name) + at, held, 8)

    def __iter__(self) -> Iterator[Variable]:
        """Yield the variables in the order of the text, which gives the numbers that the runtime
        uses.
        """
        return iter(self._variables.values())

    def address(self, name: str) -> int:
        """Return the address of a variable."""
        return ctypes.addressof(self._memory[name])


def _aligned(size: int, align: int) -> ctypes.Array:
    """Return zeroed memory whose address is a multiple of `align`."""
    whole = (ctypes.c_ubyte * (size + align))()
    start = -ctypes.addressof(whole) % align
    return (ctypes.c_ubyte * size).from_buffer(whole, start)
