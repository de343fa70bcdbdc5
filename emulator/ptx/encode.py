"""Turns a parsed kernel into the machine's arrays (machine/machine.h): handlers, slots, constants,
and each line's location.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.ptx.allocate import Flow, allocate, slot_bytes
from flash_attest.emulator.ptx.asynchronous import owned_registers
from flash_attest.emulator.ptx.declarations import encoded
from flash_attest.emulator.ptx.handlers import BRANCH, ENDS, NOT, RETURN, TOUCH, Handler
from flash_attest.emulator.ptx.instructions import plan
from flash_attest.emulator.ptx.layout import Layout
from flash_attest.emulator.ptx.rows import Plan
from flash_attest.emulator.ptx.syntax import (
    SINK,
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Not,
    Register,
    Special,
    Symbol,
    Text,
    shown,
    type_bytes,
)

NONE = -(2**31)  # as in machine.h
SPECIAL = (
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"), "%laneid", "%warpid", "%nwarpid",
    *(f"%lanemask_{name}" for name in ("eq", "le", "lt", "ge", "gt")), "%dynamic_smem_size",
    *(f"%{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"),
    "%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster",
)  # fmt: skip
SPECIAL_SLOTS = {name: 128 * i for i, name in enumerate(SPECIAL)}
# Blocks run one after another here, as on a GPU with one multiprocessor.
FIXED = {
    "%smid": 0, "%nsmid": 1, "%gridid": 0, "%tid.w": 0, "%ctaid.w": 0, "%ntid.w": 1, "%nctaid.w": 1,
    "%clusterid.w": 0, "%nclusterid.w": 1, "%cluster_ctaid.w": 0, "%cluster_nctaid.w": 1,
}  # fmt: skip
WIDTHS = {"pred": 0}  # bytes of one lane's value in a slot, by type


@dataclass
class Encoded:
    """A kernel encoded for the machine. `code`: handler, guard, negated, operands of each
    instruction; handlers index `handlers`.
    """

    handlers: list[Handler]
    code: array
    operands: array
    constants: bytearray
    # (offset in constants, variable, offset in it); the addresses are filled in during loading.
    addresses: list[tuple[int, str, int]]
    register_bytes: int
    layout: Layout
    lines: array  # for each instruction, in the PTX text
    places: array  # for each instruction: its .loc, or -1
    first_needs: dict[Handler, int]  # handler -> the first line of the PTX text that needs it


def encode(function: Function, text: Text, share: bool = True) -> Encoded:
    """Encode a kernel.

    share: whether registers that are not needed at the same time share slots.

    Raises Refused with the line of code that is not covered, CompileError for text that is not PTX.
    """
    return Encoder(function, text).encode(share)


class Encoder:
    """Collects the instructions of the machine. The functions of families.py call its methods."""

    def __init__(self, function: Function, text: Text):
        self.function, self.text = function, text
        self.layout = Layout(function, text)
        self.registers = list(function.registers)
        self.owned = owned_registers(function)
        self.handlers: dict[Handler, int] = {}
        self.code = array("i")
        self.pool: list[int] = []
        # (position in the pool, register), filled in by the allocation
        self.slots: list[tuple[int, int]] = []
        self.guards: list[tuple[int, int]] = []  # (position in the code, register)
        self.labels: list[tuple[int, Label, int]] = []  # (instruction, label, position in the pool)
        self.constants = bytearray()
        self.known: dict[tuple, int] = {}  # constants, by width and value
        self.addresses: list[tuple[int, str, int]] = []
        self.flow = Flow()
        self.lines, self.places = array("i"), array("i")
        self.carry: Register | None = None
        self.reads: list[int] = []  # for the current instruction
        self.writes: list[int] = []
        self.now: Instruction | None = None
        self.first_needs: dict[Handler, int] = {}

    def encode(self, share: bool) -> Encoded:
        starts = []
        for instruction in self.function.instructions:
            starts.append(len(self.lines))
            self.now = instruction
            entry = plan(instruction.opcode)
            if entry is None:
                raise self.refused(f"opcode {instruction.opcode}")
            if entry.row.by:
                entry.row.by(self, instruction, entry)
            else:
                self._plain(instruction, entry)
        starts.append(len(self.lines))
        self._end()
        # Labels are resolved last, because one instruction of the text may have become several.
        for number, label, place in self.labels:
            self.flow.target[number] = self.pool[place] = starts[label.index]
        # Registers get their slots last, because two may share one only if no instruction needs
        # both.
        offsets, register_bytes = allocate(
            self.flow, [r.bytes for r in self.registers], slot_bytes(4) * len(SPECIAL), share
        )
        for place, number in self.slots:
            self.pool[place] = offsets[number]
        for place, number in self.guards:
            self.code[place] = offsets[number]
        return Encoded(
            list(self.handlers), self.code, array("i", self.pool), self.constants, self.addresses, register_bytes,
            self.layout, self.lines, self.places, self.first_needs,
        )  # fmt: skip

    def _end(self) -> None:
        """End a kernel if its text does not end with a return."""
        after = len(self.function.instructions)
        last = self.function.instructions[-1] if self.function.instructions else None
        if self.flow.falls and not self.flow.falls[-1] and all(label.index < after for _, label, _ in self.labels):
            return
        line = last.line if last else self.function.line
        self.now = Instruction("ret", (), None, False, line, last.place if last else -1)
        self.emit(RETURN, ())

    def _plain(self, instruction: Instruction, entry: Plan) -> None:
        """Encode an instruction whose row describes its operands."""
        given, wanted = instruction.operands, entry.operands
        slots, position = [], 0
        for to, type in wanted:
            if type == "cc":
                slots.append(self.carry_flag(to))
                continue
            if position == len(given):
                break
            operand = given[position]
            slots.append(self.destination(operand, type) if to else self.source(operand, type))
            position += 1
        if len(slots) != len(wanted) or position != len(given):
            written = sum(type != "cc" for _, type in wanted)
            raise self.error(f"takes {written} operands, has {len(given)}")
        self.emit(entry.handler, slots)

    # ---- methods for families.py
    # ---------------------------------------------------------------------

    def emit(self, handler: Handler, operands, *, guard: Register | None = None, plain: bool = False) -> None:
        """Add a machine instruction for the current instruction of the text.

        plain: omit the guard of that instruction.
        """
        now, reads, writes = self.now, self.reads, self.writes
        self.reads, self.writes = [], []  # one instruction of the text may emit several
        if self.owned and not handler.startswith("wgmma."):
            touched = [self.owned[one] for one in dict.fromkeys((*reads, *writes)) if one in self.owned]
            if touched:
                # ptxas places copies of registers where it needs them, even before a fence.
                copies = handler.startswith("mov.")
                self.emit(TOUCH, [len(touched), int(copies), *touched], guard=guard, plain=plain)
        number = self.handlers.get(handler)
        if number is None:
            number = self.handlers[handler] = len(self.handlers)
            self.first_needs[handler] = now.line
        # Write the instruction: handler, guard, and the position of its operands in the pool.
        guard = None if plain else guard or now.guard
        index = len(self.lines)
        self.code.extend((number, NONE, now.negated and guard is not None, len(self.pool)))
        if guard is not None:
            self.guards.append((4 * index + 1, guard.number))
            reads.append(guard.number)
        # Registers and labels get their final values later (see `encode`).
        pool, slots = self.pool, self.slots
        for operand in operands:
            if operand.__class__ is Register:
                slots.append((len(pool), operand.number))
                pool.append(0)
            elif operand.__class__ is Label:
                self.labels.append((index, operand, len(pool)))
                pool.append(0)
            else:
                pool.append(operand)
        # Record the facts that the allocation of registers needs.
        flow = self.flow
        flow.reads.append(reads)
        flow.writes.append(writes)
        # A lane whose guard is false keeps the destination's old value.
        flow.partial.append(guard is not None)
        flow.target.append(-1)
        flow.falls.append(guard is not None or (handler != BRANCH and handler not in ENDS))
        self.lines.append(now.line)
        self.places.append(now.place)

    def source(self, operand, type: str, width: int | None = None) -> Register | int:
        """Return the slot of a source. width: the width of the slot, if it may be wider than the
        type.
        """
        if width is None:
            width = WIDTHS.get(type)
            if width is None:
                width = WIDTHS[type] = max(2, type_bytes(type))
        kind = operand.__class__
        if kind is Register:
            if operand.bytes != width:
                raise self._wrong_width(operand, type)
            self.reads.append(operand.number)
            return operand
        if kind is Immediate:
            return self.constant(operand, type, width)
        if kind is Special:
            return self.special(operand, type, width)
        if kind is Symbol and width in (4, 8):
            return self.symbol(operand, width)
        if kind is Not and type == "pred":
            return self.inverted(operand.predicate)
        raise self.error(f"{shown(operand)} cannot be a source of type .{type}")

    def destination(self, operand, type: str, width: int | None = None) -> Register:
        """Return the slot of a destination."""
        if width is None:
            width = WIDTHS.get(type)
            if width is None:
                width = WIDTHS[type] = max(2, type_bytes(type))
        if operand is SINK:
            operand = self.temporary(width)
        if operand.__class__ is not Register:
            raise self.error(f"{shown(operand)} cannot be a destination")
        if operand.bytes != width:
            raise self._wrong_width(operand, type)
        self.writes.append(operand.number)
        return operand

    def constant(self, value: Immediate, type: str, width: int) -> int:
        """Return the slot of a number."""
        if width == 0:
            return self.slot_of((-1 if value.value else 0).to_bytes(4, "little", signed=True), 1)
        try:
            bits = encoded(value, type)
        except (ValueError, OverflowError) as error:
            raise self.error(str(error)) from error
        fill = b"\xff" if type[0] == "s" and bits[-1] >= 128 else b"\0"
        return self.slot_of(bits + fill * (width - len(bits)), 32)

    def slot_of(self, value: bytes, times: int) -> int:
        known = self.known.get((value, times))
        if known is None:
            self.constants.extend(bytes(-len(self.constants) % 64))
            known = self.known[value, times] = ~len(self.constants)
            self.constants.extend(value * times)
        return known

    def number(self, value: int) -> int:
        """Return the slot of a 32-bit number."""
        return self.slot_of((value % 2**32).to_bytes(4, "little"), 32)

    def special(self, operand: Special, type: str, width: int) -> Register | int:
        if operand.name in FIXED:
            return self.constant(Immediate(FIXED[operand.name]), type, width)
        slot = SPECIAL_SLOTS.get(operand.name)
        if slot is None:
            raise self.refused(f"register {operand.name}")
        if width != (0 if operand.name == "%is_explicit_cluster" else 4):
            raise self.error(f"{operand.name} is 32 bits wide, the operand is of type .{type}")
        return slot

    def symbol(self, symbol: Symbol, width: int = 8) -> int:
        """Return the slot of an address."""
        space, value = self.layout.address(symbol, self)
        if space in ("global", "const"):
            if width != 8:
                raise self.error(f"the address of {symbol.name} is 64 bits wide")
            known = self.known.get(symbol)
            if known is None:
                known = self.known[symbol] = ~self._room(8)
                self.addresses.append((~known, symbol.name, symbol.offset))
            return known
        return self.slot_of((value % 2 ** (8 * width)).to_bytes(width, "little"), 32)

    def _room(self, width: int) -> int:
        self.constants.extend(bytes(-len(self.constants) % 64))
        self.constants.extend(bytes(32 * width))
        return len(self.constants) - 32 * width

    def address(self, operand, space: str) -> list:
        """Return [slot, bytes of the address, offset] of an operand in brackets."""
        if operand.__class__ is not Address:
            raise self.error(f"{shown(operand)} is not an address")
        base = operand.base
        if base.__class__ is Register:
            if base.bytes not in (4, 8):
                raise self.error(f"{base.name} is too narrow for an address")
            self.reads.append(base.number)
            return [base, base.bytes, self._offset(operand.offset)]
        if base is None:
            return [self.slot_of((operand.offset % 2**64).to_bytes(8, "little"), 32), 8, 0]
        declared, _ = self.layout.address(base, self)
        if space not in (declared, "") or (not space and declared not in ("global", "const")):
            raise self.error(f"{base.name} is in .{declared}, not in {'.' + space if space else 'generic memory'}")
        return [self.symbol(base), 8, self._offset(operand.offset)]

    def _offset(self, offset: int) -> int:
        if not -(2**31) < offset < 2**31:
            raise self.error(f"the offset {offset} is larger than 31 bits")
        return offset

    def temporary(self, width: int) -> Register:
        """Return a new register that the encoder uses itself."""
        register = Register("", {0: "pred", 2: "b16", 4: "b32", 8: "b64"}[width], len(self.registers))
        self.registers.append(register)
        return register

    def inverted(self, predicate) -> Register:
        """Return a predicate that is !predicate."""
        # The inversion comes before the instruction that uses it. That instruction is incomplete,
        # so its reads and writes are set aside.
        reads, writes = self.reads, self.writes
        self.reads, self.writes = [], []
        register = self.temporary(0)
        self.emit(NOT, [self.destination(register, "pred"), self.source(predicate, "pred")])
        self.reads, self.writes = reads, writes
        self.reads.append(register.number)
        return register

    def carry_flag(self, written: bool) -> Register:
        if self.carry is None:
            self.carry = self.temporary(0)
        (self.writes if written else self.reads).append(self.carry.number)
        return self.carry

    def refused(self, reason: str) -> Refused:
        return Refused(reason, self.text.source, self.now.line)

    def error(self, what: str) -> CompileError:
        return CompileError(f"{self.text.source}:{self.now.line}: {self.now.opcode}: {what}")

    def _wrong_width(self, register: Register, type: str) -> CompileError:
        return self.error(f"{register.name} is declared .{register.type}, the operand should be .{type}")
