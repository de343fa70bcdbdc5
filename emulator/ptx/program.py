"""A kernel in the machine, and what its records mean: lines and variables."""

from __future__ import annotations

import ctypes
import linecache
import re
import struct
import weakref
from array import array

from flash_attest.emulator.errors import Refused
from flash_attest.emulator.observation import Site
from flash_attest.emulator.ptx.decoded import Decoded
from flash_attest.emulator.ptx.encode import Encoded
from flash_attest.emulator.ptx.machine import handlers, machine
from flash_attest.emulator.ptx.storage import Storage
from flash_attest.emulator.runtime.symbols import Variable as Known
from flash_attest.emulator.runtime.symbols import register


class Program:
    """A kernel in the machine, and what its records mean (runtime/symbols.py, Symbols).

    storage: the variables of its module. library: the module's name in records. replicated: see
    `load` (module.py). Raises Refused, CompileError.
    """

    def __init__(self, text: Decoded, name: str, storage: Storage, library: str, replicated: bool):
        code, self.places = text.code(name)
        self.name, self.code, self.text, self.source = name, code, text, text.source
        known = handlers()
        for handler, line in code.first_needs.items():
            if handler not in known:
                raise Refused(f"opcode {handler}", text.source, line)
        self._storage = storage  # all variables are needed: one may hold the address of another
        self.address = self._made(code, [known[name] for name in code.handlers], replicated)
        weakref.finalize(self, machine().emulator_ptx_free, self.address)
        own = f"{library}:{name}"
        self.handle = machine().emulator_ptx_module(own.encode())
        for variable in storage:
            at = storage.address(variable.name)
            machine().emulator_ptx_global(self.handle, at, variable.size, variable.space == "const")
        register(own, self)

    def _made(self, code: Encoded, numbers: list[int], replicated: bool) -> int:
        instructions = array("i", code.code)
        for i in range(0, len(instructions), 4):
            instructions[i] = numbers[instructions[i]]
        constants = bytearray(code.constants)
        for at, name, offset in code.addresses:
            # This runs once for each lane.
            constants[at : at + 256] = struct.pack("<Q", self._storage.address(name) + offset) * 32
        layout, lib = code.layout, machine()
        address = lib.emulator_ptx_program(
            instructions.buffer_info()[0], len(code.lines), code.operands.buffer_info()[0], len(code.operands),
            bytes(constants), len(constants), code.register_bytes, layout.local_bytes, layout.shared_bytes,
        )  # fmt: skip
        if replicated:
            lib.emulator_ptx_replicated(address)
        for variable in layout.shared:
            lib.emulator_ptx_shared_span(address, variable.start, variable.end)
        where = [self._line(i) for i in range(len(code.lines))]
        texts = {file: file.encode() for file, _ in where}
        self._files = (ctypes.c_char_p * len(where))(*(texts[file] for file, _ in where))
        lines = array("i", (line for _, line in where))
        lib.emulator_ptx_lines(address, self._files, lines.buffer_info()[0], len(where))
        return address

    def _line(self, index: int) -> tuple[str, int]:
        """Return the author's file and line of an instruction, or the line of the PTX if the
        author's is unknown.
        """
        place = self.code.places[index]
        return self.places[place] if place >= 0 and self.places[place][0] else (self.source, self.code.lines[index])

    # ---- Symbols
    # -------------------------------------------------------------------------------------

    @property
    def dynamic_start(self) -> int:
        layout = self.code.layout
        return layout.shared_bytes if layout.is_dynamic or not layout.shared else 2**63

    def sites(self, offsets: set[int]) -> dict[int, Site]:
        return {offset: self._site(offset - 1) for offset in offsets}

    def _site(self, index: int) -> Site:
        if not 0 <= index < len(self.code.lines):
            return Site("", 0)
        file, line = self._line(index)
        if file == self.source:
            return Site(file, line, self.name, self.text.lines[line - 1].strip())
        return Site(file, line, self.name, linecache.getline(file, line).strip())

    def shared(self, dynamic: bool) -> list[Known]:
        placed = self.code.layout.shared if dynamic else []
        return [Known(v.start, v.end, readable(v.name), self.name) for v in placed]

    def module(self, region: int) -> list[Known]:
        variable = list(self._storage)[region]
        return [Known(0, variable.size, readable(variable.name))]


def readable(name: str) -> str:
    """Return a variable's name in the source. C++ puts enclosing functions into its symbol
    (_ZZ4gemmPfE4tile -> tile).
    """
    if name.startswith("_ZZ"):
        for match in re.finditer(r"E(\d+)", name):
            start, length = match.end(), int(match[1])
            if len(name) - start == length or re.fullmatch(r"_\d+|__\d+_", name[start + length :] or "x"):
                return name[start : start + length]
    if match := re.match(r"_ZN?(?:L)?(\d+)", name):
        start, parts = match.start(1), []
        while number := re.match(r"(\d+)", name[start:]):
            start += number.end()
            parts.append(name[start : start + int(number[1])])
            start += int(number[1])
        return parts[-1]
    return name
