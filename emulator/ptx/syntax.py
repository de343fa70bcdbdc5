"""The parts of PTX text after parsing: modules, kernels, variables, instructions, operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}  # of a type by the digits of its name


def type_bytes(name: str) -> int:
    """Return the bytes of one value of a type: "f32" -> 4, "f16x2" -> 4, "pred" -> 0."""
    if name == "pred":
        return 0
    scalar, _, count = name.partition("x")
    return BYTES[scalar.lstrip("bsuft")] * int(count or 1)


class Register:
    """A declared register. `bytes`: the size of one lane's value in the machine: 2, 4, 8, or 0 for
    a predicate.
    """

    __slots__ = ("bytes", "name", "number", "type")

    def __init__(self, name: str, type: str, number: int):
        self.name, self.type, self.number = name, type, number
        self.bytes = max(2, type_bytes(type)) if type != "pred" else 0

    def __repr__(self) -> str:
        return f"<{self.name} .{self.type}>"


class Immediate(NamedTuple):
    """A number as written: an int, a float, or the bits of a float (0f3F800000: bits, 32)."""

    value: int | float
    bits: int = 0  # 32 or 64 if value is the bits of a float of that width


class Special(NamedTuple):
    """A predefined register, such as %tid.x."""

    name: str


class Symbol(NamedTuple):
    """The address of a variable or of a parameter, or the name of a function."""

    name: str
    offset: int = 0


class Address(NamedTuple):
    """An address [base + offset]. The base is a Register, a Symbol, or None for an absolute
    address.
    """

    base: Register | Symbol | None
    offset: int


class Not(NamedTuple):
    """A negated predicate, !p."""

    predicate: Register


class Pair(NamedTuple):
    """Two destinations, p|q."""

    first: object
    second: object


class Label:
    """The target of a branch. `index`: the index of the instruction there."""

    __slots__ = ("index", "name")

    def __init__(self, name: str):
        self.name, self.index = name, -1


class Sink:
    """The operand _, which is an unwanted destination or an omitted source."""

    def __repr__(self) -> str:
        return "_"


SINK = Sink()


def shown(operand) -> str:
    """Return an operand as PTX writes it."""
    if operand.__class__ is tuple:
        return f"{{{', '.join(map(shown, operand))}}}"
    if isinstance(operand, Address):
        return f"[{shown(operand.base) if operand.base else ''}{operand.offset:+d}]"
    if isinstance(operand, Not):
        return f"!{shown(operand.predicate)}"
    if isinstance(operand, Pair):
        return f"{shown(operand.first)}|{shown(operand.second)}"
    return str(getattr(operand, "name", getattr(operand, "value", operand))) or "nothing"


class Instruction(NamedTuple):
    """A statement. `line`: its line of the PTX text. `place`: the number of its .loc in
    Module.places, or -1.
    """

    opcode: str
    operands: tuple
    guard: Register | None
    negated: bool
    line: int
    place: int


@dataclass(frozen=True)
class Variable:
    """A variable of a state space. `values`: its initial bytes, as far as given; None without an
    initialiser.
    """

    name: str
    space: str
    align: int
    size: int  # 0 if the launch chooses it
    line: int
    values: bytes | None = None
    addresses: tuple[tuple[int, Symbol], ...] = ()  # (offset, symbol): initialised by an address
    extern: bool = False


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its position in the parameter buffer and its type, "u64", "f32",
    ...; "b8" for a struct.
    """

    name: str
    offset: int
    size: int
    kind: str
    pointer: bool = False  # declared .ptr


@dataclass
class Function:
    """A kernel (.entry) or a device function (.func)."""

    name: str
    is_kernel: bool
    line: int
    parameters: list[Parameter] = field(default_factory=list)
    results: list[Parameter] = field(default_factory=list)  # of a device function
    variables: dict[str, Variable] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)  # "reqntid": (128, 1, 1)
    has_body: bool = True


class Place(NamedTuple):
    """A .loc, which names a line of the author's source.

    within: the lines that this code was inlined into, innermost first. A file is given by its
    number, or by the end of its path if LLVM gives no more, as for enclosing lines.
    """

    file: int | str
    line: int
    within: tuple[tuple[int | str, int], ...] = ()


@dataclass
class Text:
    """A parsed PTX module."""

    source: str  # its name, for messages
    target: str = ""
    version: tuple[int, int] = (0, 0)  # of the PTX ISA
    files: dict[int, str] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    @property
    def kernels(self) -> dict[str, Function]:
        return {name: function for name, function in self.functions.items() if function.is_kernel}
