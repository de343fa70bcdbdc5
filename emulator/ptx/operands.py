"""Reads operands: names in scopes, addresses, vectors, literals."""

from __future__ import annotations

import re
from collections.abc import Callable

from flash_attest.emulator.ptx.declarations import number
from flash_attest.emulator.ptx.syntax import (
    SINK,
    Address,
    Function,
    Immediate,
    Label,
    Not,
    Pair,
    Register,
    Special,
    Symbol,
)

NAME = r"[A-Za-z_$%][\w$]*"
NUMBERED = re.compile(r"(.*?)(\d+)$", re.DOTALL)
ADDRESS = re.compile(rf"({NAME})?\s*((?:[+-]\s*)*(?:0[xX][0-9a-fA-F]+|\d+)U?)?$")
WORD = re.compile(rf"{NAME}$")
SPECIALS = re.compile(
    r"%(?:(?:tid|ntid|ctaid|nctaid)(?:\.[xyzw])?|laneid|warpid|nwarpid|smid|nsmid|gridid|lanemask_\w\w|clock(?:64|_hi)?|"
    r"globaltimer(?:_lo|_hi)?|pm\d+(?:_64)?|envreg\d+|\w*smem_size|n?cluster\w*(?:\.[xyzw])?|is_explicit_cluster|"
    r"reserved_smem_\w+|current_graph_exec)$"
)


class Scope:
    """The names that a { } block declares, in addition to the names of the enclosing scopes."""

    __slots__ = ("labels", "names", "operands", "outer", "pending", "ranges")

    def __init__(self, outer: Scope | None = None):
        self.outer = outer
        self.names: dict[str, Register] = {}
        self.ranges: dict[str, tuple[int, str]] = {}  # "%r": (1296, "b32") of .reg .b32 %r<1296>
        self.labels: dict[str, int] = {}
        self.pending: list[tuple[Label, int]] = []  # branches, with their lines
        self.operands: dict[str, object] = {}  # operands that have been read


class Operands:
    """Reads the operands of the function `function` in the scope `scope`."""

    function: Function | None
    scope: Scope
    error: Callable[..., Exception]  # makes an error with the line

    def _operand(self, text: str) -> object:
        operand = self.scope.operands.get(text)
        if operand is None:
            operand = self.scope.operands[text] = self._read(text)
        return operand

    def _read(self, text: str) -> object:
        """Return an operand; "" for an empty one."""
        if not text:
            return ""
        first = text[0]
        if first == "{":
            inside = text[1:-1].strip() if text[-1] == "}" else self._unknown(text)
            return tuple(self._operand(part.strip()) for part in inside.split(",")) if inside else ()
        if first == "[" and text[-2:] == "}]":  # a tensor map and coordinates
            address, _, coordinates = text[1:-1].partition(",")
            return Pair(self._address(address.strip()), self._operand(coordinates.strip()))
        if first == "[":
            return self._address(text[1:-1].strip()) if text[-1] == "]" else self._unknown(text)
        if first == "!":
            return Not(self._operand(text[1:].strip()))
        if text == "_":
            return SINK
        if first in "0123456789-+":
            value = number(text)
            return self._unknown(text) if value is None else value
        if "|" in text:
            return Pair(*(self._operand(part.strip()) for part in text.split("|", 1)))
        register = self._register(text)
        if register is not None:
            return register
        if text == "WARP_SZ":
            return Immediate(32)
        if SPECIALS.match(text):
            return Special(text)
        if WORD.match(text):
            return Symbol(text)
        symbol = ADDRESS.match(text)  # such as variable+4
        if symbol and symbol[1] and not self._register(symbol[1]):
            return Symbol(symbol[1], _signed(symbol[2]))
        return self._unknown(text)

    def _address(self, text: str) -> Address:
        match = ADDRESS.match(text)
        if not match or not text:
            self._unknown(f"[{text}]")
        name, offset = match[1], _signed(match[2])
        if name is None:
            return Address(None, offset)
        return Address(self._register(name) or Symbol(name), offset)

    def _unknown(self, text: str) -> object:
        raise self.error(f"{text!r} cannot be read as an operand")

    def _register(self, name: str) -> Register | None:
        scope = self.scope
        while scope is not None:
            if register := scope.names.get(name):
                return register
            numbered = NUMBERED.match(name) if scope.ranges else None
            if numbered and numbered[1] in scope.ranges:
                count, type = scope.ranges[numbered[1]]
                if int(numbered[2]) < count and (numbered[2] == "0" or numbered[2][0] != "0"):
                    return self._declare(scope, name, type)
            scope = scope.outer
        return None

    def _declare(self, scope: Scope, name: str, type: str) -> Register:
        register = scope.names[name] = Register(name, type, len(self.function.registers))
        self.function.registers.append(register)
        return register


def _signed(text: str | None) -> int:
    if not text:
        return 0
    digits = text.replace(" ", "").rstrip("U")
    sign = -1 if digits.count("-") % 2 else 1
    digits = digits.lstrip("+-")
    return sign * int(digits, 8 if re.fullmatch(r"0[0-7]+", digits) else 0)
