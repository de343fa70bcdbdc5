"""Numbers, parameters and variables of PTX text."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

from flash_attest.emulator.ptx.syntax import Immediate, Parameter, Symbol, Variable, type_bytes

INTEGER = re.compile(r"(-?)\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
BITS = re.compile(r"(-?)\s*0([fFdD])([0-9a-fA-F]{8}|[0-9a-fA-F]{16})$")
DECIMAL = re.compile(r"[+-]?\s*(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?$")
TYPE = re.compile(r"\.(pred|[bsuf](?:8|16|32|64|128)|(?:bf16|f16)(?:x2)?)\b")
ONE = re.compile(r"\s*([\w$%]+)((?:\s*\[\s*\w*\s*\])*)\s*(?:=\s*(.*?))?\s*$", re.DOTALL)


def number(text: str) -> Immediate | None:
    """Return a literal's value; None if the text is not a literal."""
    if match := INTEGER.match(text):
        digits = match[2]
        octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
        value = int(digits, 8 if octal else 0)
        return Immediate(-value if match[1] else value)
    if match := BITS.match(text):
        wide = match[2] in "dD"
        if len(match[3]) != (16 if wide else 8):
            return None
        width = 64 if wide else 32
        return Immediate(int(match[3], 16) ^ (1 << width - 1 if match[1] else 0), width)
    if DECIMAL.match(text):
        return Immediate(float(text.replace(" ", "")))
    return None


def encoded(value: Immediate, type: str) -> bytes:
    """Return the bytes of a literal in a type. A number that does not fit is truncated as in C."""
    size = type_bytes(type)
    if type in ("f32", "f64") or (value.bits and size in (4, 8)):
        as_float = value.value
        if value.bits:
            if value.bits == 8 * size:
                return value.value.to_bytes(size, "little")
            code = "<d" if value.bits == 64 else "<f"
            as_float = struct.unpack(code, value.value.to_bytes(value.bits // 8, "little"))[0]
        elif type not in ("f32", "f64"):
            return (value.value % (1 << 8 * size)).to_bytes(size, "little")
        return struct.pack("<f" if size == 4 else "<d", as_float)
    if isinstance(value.value, float):
        raise ValueError(f"{value.value} is not an integer, as .{type} should be")
    return (value.value % (1 << 8 * size)).to_bytes(size, "little")


def parameters(text: str, error: Callable[..., Exception]) -> list[Parameter]:
    """Return the parameters of a function, with their offsets."""
    results, offset = [], 0
    for one in filter(None, (part.strip() for part in text.split(","))):
        type, name = TYPE.search(one), re.search(r"([\w$%]+)\s*(?:\[\s*(\d*)\s*\])?$", one)
        if not one.startswith((".param", ".reg")) or not type or not name:
            raise error(f"{one!r} cannot be read as a parameter")
        size = type_bytes(type[1]) * int(name[2] or 1)
        align = re.search(r"\.align\s+(\d+)", one)
        # In this case .align belongs to the data that the parameter points to.
        pointer = bool(re.search(r"\.ptr\b", one))
        step = int(align[1]) if align and not pointer else type_bytes(type[1])
        offset = -(-offset // step) * step
        kind = f"{type[1]}[]" if name[2] is not None else type[1]
        results.append(Parameter(name[1], offset, size, kind, pointer))
        offset += size
    return results


def variables(space: str, text: str, extern: bool, line: int, error: Callable[..., Exception]) -> Iterator[Variable]:
    """Return the variables of one declaration: the text after .shared, .global, .const, .local or
    .param.
    """
    type, align, vector = TYPE.search(text), re.search(r"\.align\s+(\d+)", text), re.search(r"\.v([24])\b", text)
    if not type:
        raise error(f".{space}{text.rstrip()}: has no known type")
    rest = text[max(m.end() for m in (type, align, vector) if m) :]
    width = type_bytes(type[1]) * int(vector[1] if vector else 1)
    for one in _split(re.sub(r"\.(?:attribute\s*\([^)]*\)|managed|ptr|unified)\b", "", rest)):
        match = ONE.match(one)
        if not match:
            raise error(f"{one.strip()!r} cannot be read as a variable")
        sizes = [int(n, 0) if n else 0 for n in re.findall(r"\[\s*(\w*)\s*\]", match[2])]
        values, addresses = None, ()
        if match[3] is not None:
            values, addresses = _initialiser(match[3], type[1], error)
        count = 1
        for n in sizes:
            count *= n
        if sizes and not sizes[0] and values is not None:
            count = len(values) // width
        yield Variable(
            match[1], space, int(align[1]) if align else width, width * count, line, values, addresses, extern
        )


def _split(text: str) -> list[str]:
    """Split the text at commas outside braces."""
    return re.findall(r"(?:\{(?:[^{}]|\{[^{}]*\})*\}|[^,{}])+", text)


def _initialiser(text: str, type: str, error: Callable[..., Exception]) -> tuple[bytes, tuple]:
    """Return (the initial bytes, the addresses among them)."""
    if "{" in text.strip()[1:]:
        raise error("an initialiser with braces within braces is not covered")
    values, addresses = bytearray(), []
    for item in filter(None, (part.strip() for part in text.strip().strip("{}").split(","))):
        if literal := number(item):
            values += encoded(literal, type)
        elif symbol := re.fullmatch(r"(?:generic\s*\(\s*)?([A-Za-z_$%][\w$]*)\s*\)?(?:\s*\+\s*(\d+))?", item):
            if type_bytes(type) != 8:
                raise error(f"the address {item!r} is not 64 bits wide")
            addresses.append((len(values), Symbol(symbol[1], int(symbol[2] or 0))))
            values += bytes(8)
        else:
            raise error(f"{item!r} cannot be read as a value")
    return bytes(values), tuple(addresses)
