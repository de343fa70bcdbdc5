"""Replaces calls by the called functions. Each copy has its own registers, labels and variables.

The parameters of a call are variables in local memory: the caller stores to them and the function
loads from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.ptx.syntax import (
    Address,
    Function,
    Instruction,
    Label,
    Not,
    Pair,
    Register,
    Symbol,
    Text,
    Variable,
)

CALL = re.compile(r"(?:\(\s*([^)]*)\)\s*,\s*)?([\w$%]+)\s*(?:,\s*\(([^)]*)\))?\s*(,.*)?$", re.DOTALL)
MOST = 400_000  # instructions of a kernel with everything that it calls
# nvcc turns assert() and printf() into these calls. Each has our opcode and its number of
# parameters.
KNOWN = {"__assertfail": ("trap.assert", 1), "vprintf": ("vprintf", 2)}


def inlined(function: Function, text: Text, read: Callable[[str], Function]) -> Function:
    """Return a kernel without calls.

    read: returns the function of a name, with its instructions.

    Raises Refused, CompileError.
    """
    if not any(i.opcode.startswith("call") for i in function.instructions):
        return function
    return _Inliner(function, text, read).made


class _Inliner:
    def __init__(self, kernel: Function, text: Text, read: Callable[[str], Function]):
        self.text, self.read, self.copies = text, read, 0
        self.made = replace(
            kernel, instructions=[], registers=list(kernel.registers), variables=dict(_placed(kernel, ""))
        )
        self._copy(kernel, {name: name for name in self.made.variables}, (kernel.name,), None)

    def _copy(self, function: Function, names: dict[str, str], within: tuple[str, ...], end: Label | None) -> None:
        """Add the instructions of a function.

        names: the function's variables, by their names in the kernel. end: the label to which it
        returns, None for the kernel.
        """
        out, starts, labels = self.made.instructions, [], {}
        known: dict = {}

        # Make an operand for the copy. The kernel keeps its own registers; each call gets new ones.
        def mapped(operand):
            kind = operand.__class__
            if kind is Register:
                if end is None:
                    return operand
                if operand not in known:
                    known[operand] = Register(operand.name, operand.type, len(self.made.registers))
                    self.made.registers.append(known[operand])
                return known[operand]
            if kind is Label:
                return labels.setdefault(operand, Label(operand.name))
            if kind is Symbol:
                return Symbol(names.get(operand.name, operand.name), operand.offset)
            if kind is Address:
                return Address(mapped(operand.base), operand.offset) if operand.base else operand
            if kind is Not:
                return Not(mapped(operand.predicate))
            if kind is Pair:
                return Pair(mapped(operand.first), mapped(operand.second))
            return tuple(map(mapped, operand)) if kind is tuple else operand

        for i in function.instructions:
            starts.append(len(out))
            if len(out) > MOST:
                raise Refused(
                    f"{within[0]} with all that it calls has more than {MOST} instructions", self.text.source, i.line
                )
            if i.opcode.startswith("call"):
                self._call(i, mapped, names, within)
                continue
            guard = mapped(i.guard) if i.guard else None
            # A return of a called function becomes a branch to its end.
            if end is not None and i.opcode in ("ret", "ret.uni"):
                out.append(i._replace(opcode="bra", operands=(end,), guard=guard))
                continue
            opcode = i.opcode
            if ".param" in opcode and self._is_local(i, names, end is not None):
                opcode = opcode.replace(".param::func", ".local").replace(".param", ".local")
            out.append(i._replace(opcode=opcode, operands=tuple(map(mapped, i.operands)), guard=guard))
        # Calls have added instructions, so labels get their final positions here.
        starts.append(len(out))
        for old, new in labels.items():
            new.index = starts[old.index]

    def _is_local(self, i: Instruction, names: dict[str, str], in_function: bool) -> bool:
        """Return whether a ld.param or st.param accesses a parameter of a call rather than a
        parameter of the kernel.
        """
        address = next((operand for operand in i.operands if isinstance(operand, Address)), None)
        if address is None:
            return False
        return address.base.name in names if isinstance(address.base, Symbol) else in_function

    def _call(self, i: Instruction, mapped: Callable, names: dict[str, str], within: tuple[str, ...]) -> None:
        match = CALL.match(i.operands[0])
        if not match:
            raise CompileError(f"{self.text.source}:{i.line}: {i.opcode} {i.operands[0]}: cannot be read as a call")
        results, name, given, prototype = match.groups()
        out = self.made.instructions
        guard = mapped(i.guard) if i.guard else None
        # A call of one of CUDA's own functions becomes one opcode.
        if name in KNOWN:
            opcode, count = KNOWN[name]
            out.extend(self._known(i, opcode, guard, _passed(given, names)[:count]))
            return
        function = self.text.functions.get(name)
        if prototype or function is None or not function.has_body:
            raise Refused(f"a call of {name}", self.text.source, i.line)
        if name in within:
            raise Refused(f"{name}, which calls itself", self.text.source, i.line)

        # Give the copy its own variables, and bind its parameters to the caller's variables.
        function = self.read(name)
        self.copies += 1
        prefix = f"{name}.{self.copies}."
        self.made.variables |= _placed(function, prefix)
        inner = {variable: prefix + variable for variable in _placed(function, "")}
        for formal, actual in ((function.results, results), (function.parameters, given)):
            passed = _passed(actual, names)
            if len(passed) != len(formal):
                raise CompileError(
                    f"{self.text.source}:{i.line}: {name} is called with {len(passed)} parameters, takes {len(formal)}"
                )
            for parameter, variable in zip(formal, passed, strict=True):
                if variable not in self.made.variables:
                    raise Refused(f"a call of {name} with parameters in registers", self.text.source, i.line)
                inner[parameter.name] = variable

        # Insert the code. Lanes whose guard is false branch around it.
        end = Label(f"after {name}")
        if guard is not None:
            out.append(Instruction("bra", (end,), guard, not i.negated, i.line, i.place))
        self._copy(function, inner, (*within, name), end)
        end.index = len(out)

    def _known(self, i: Instruction, opcode: str, guard, parameters: list[str]) -> Iterator[Instruction]:
        """Yield the opcode for a call of one of CUDA's own functions. Its first parameters are
        addresses, which become operands.
        """
        operands = []
        for variable in parameters:
            operands.append(Register(f"%{variable}", "b64", len(self.made.registers)))
            self.made.registers.append(operands[-1])
            load = operands[-1], Address(Symbol(variable, 0), 0)
            yield Instruction("ld.local.b64", load, guard, i.negated, i.line, i.place)
        yield Instruction(opcode, tuple(operands), guard, i.negated, i.line, i.place)


def _passed(listed: str | None, names: dict[str, str]) -> list[str]:
    """Return the variables in a call's list, by their names in the kernel."""
    return [names.get(part, part) for part in re.findall(r"[\w$%]+", listed or "")]


def _placed(function: Function, prefix: str) -> dict[str, Variable]:
    """Return the variables of a function by their names in the kernel. Parameters of calls are
    local variables.
    """
    return {
        prefix + v.name: replace(v, name=prefix + v.name, space="local" if v.space == "param" else v.space)
        for v in function.variables.values()
    }
