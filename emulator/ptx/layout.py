"""The addresses of a kernel's variables: in its shared memory, its local memory and its
parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flash_attest.emulator.ptx.syntax import Function, Symbol, Text, Variable

APART = 256  # bytes between two shared variables, so that an access beyond one of them is detected


@dataclass(frozen=True)
class Placed:
    """A variable in the kernel's shared memory."""

    name: str
    start: int
    end: int


@dataclass
class Layout:
    """The variables that a kernel uses.

    Shared memory contains the kernel's own variables, then APART unused bytes, then the launch's
    dynamic memory.
    """

    function: Function
    text: Text
    shared: list[Placed] = field(default_factory=list)
    shared_bytes: int = 0
    local_bytes: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    is_dynamic: bool = False  # whether it uses the shared memory of the launch

    def __post_init__(self):
        self._parameters = {parameter.name: parameter for parameter in self.function.parameters}
        self._lay_out()

    def __getstate__(self) -> dict:
        # These are not needed once a kernel is encoded.
        return self.__dict__ | {"function": None, "text": None}

    def variable(self, name: str) -> Variable | None:
        return self.function.variables.get(name) or self.text.variables.get(name)

    def address(self, symbol: Symbol, encoder) -> tuple[str, int]:
        """Return (space, address): an offset in shared memory, local memory or the parameters; 0
        for other spaces.
        """
        if parameter := self._parameters.get(symbol.name):
            return "param", parameter.offset + symbol.offset
        variable = self.variable(symbol.name)
        if variable is None:
            if symbol.name in self.text.functions:
                raise encoder.refused(f"the address of the function {symbol.name}")
            raise encoder.error(f"{symbol.name!r} is not declared")
        if variable.space in ("global", "const"):
            if variable.extern:
                raise encoder.refused(f"{variable.name}, which another module defines")
            return variable.space, 0
        if variable.space == "param":
            raise encoder.refused(f"{variable.name}, a parameter of a call")
        return variable.space, self.offsets[variable.name] + symbol.offset

    def _lay_out(self) -> None:
        used = self._used()
        dynamic = []
        for name in used:
            variable = self.variable(name)
            if variable is None:
                continue
            if variable.space == "local":
                self.offsets[name] = _up(self.local_bytes, variable.align)
                self.local_bytes = self.offsets[name] + variable.size
            elif variable.space == "shared" and (variable.extern or not variable.size):
                dynamic.append(name)
            elif variable.space == "shared":
                start = _up(self.shared_bytes + (APART if self.shared else 0), variable.align)
                self.offsets[name] = start
                self.shared_bytes = start + variable.size
                self.shared.append(Placed(name, start, self.shared_bytes))
        if self.shared and dynamic:
            largest = max(APART, *(self.variable(name).align for name in dynamic))
            self.shared_bytes = _up(self.shared_bytes + APART, largest)
        self.is_dynamic = bool(dynamic)
        for name in dynamic:
            self.offsets[name] = self.shared_bytes

    def _used(self) -> list[str]:
        """Return the variables that the kernel names, in the order of their declarations."""
        named: set[str] = set()
        for instruction in self.function.instructions:
            for operand in instruction.operands:
                _collect(operand, named)
        return [name for name in {**self.text.variables, **self.function.variables} if name in named]


def _collect(operand, named: set[str]) -> None:
    if operand.__class__ is Symbol:
        named.add(operand.name)
    elif operand.__class__ is tuple:
        for part in operand:
            _collect(part, named)
    elif operand.__class__.__name__ == "Address":
        _collect(operand.base, named)


def _up(n: int, to: int) -> int:
    return -(-n // to) * to
