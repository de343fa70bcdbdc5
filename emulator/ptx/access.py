"""Instructions that access memory: each function encodes one family of the table.

The table is in instructions.py.
"""

from __future__ import annotations

from collections.abc import Callable

from flash_attest.emulator.ptx.families import NONE, as_tuple, take, wanted
from flash_attest.emulator.ptx.rows import Plan
from flash_attest.emulator.ptx.syntax import SINK, Immediate, Instruction, Not, Register, type_bytes

SPACES = {"": 0, "global": 1, "shared": 2, "local": 3, "const": 4, "param": 5}  # enum AddressSpace of machine.h


def ld(encoder, instruction: Instruction, plan: Plan) -> None:
    hinted = ".L2::cache_hint" in instruction.opcode
    to, address, *_ = take(encoder, instruction, 3 if hinted else 2)
    type, space = plan.words["t"], plan.words["space"] or ""
    to = as_tuple(to)
    bytes = _check_vector(encoder, plan, to, type)
    where = encoder.address(address, space)
    targets = [encoder.destination(one, type, bytes) for one in to]
    element = type_bytes(type)
    encoder.emit(plan.handler, [SPACES[space], *where, element, len(to), int(type[0] == "s"), bytes, *targets])


def st(encoder, instruction: Instruction, plan: Plan) -> None:
    hinted = ".L2::cache_hint" in instruction.opcode
    address, values, *_ = take(encoder, instruction, 3 if hinted else 2)
    type, space = plan.words["t"], plan.words["space"] or ""
    values = as_tuple(values)
    if space in ("const", "param"):
        raise encoder.refused(f"a store to .{space}")
    bytes = _check_vector(encoder, plan, values, type)
    where = encoder.address(address, space)
    sources = [encoder.source(one, type, bytes) for one in values]
    encoder.emit(plan.handler, [SPACES[space], *where, type_bytes(type), len(values), bytes, *sources])


def _check_vector(encoder, plan: Plan, operands: tuple, type: str) -> int:
    """Return the bytes of each register of a load or a store; all registers must have the same
    width.
    """
    count = int((plan.words["vec"] or "v1")[1:])
    if len(operands) != count:
        raise encoder.error(f"takes {count} registers, has {len(operands)}")
    if count * type_bytes(type) > 16:
        raise encoder.refused(f"{encoder.now.opcode}: more than 16 bytes at once")
    widths = {one.bytes for one in operands if one.__class__ is Register} or {max(2, type_bytes(type))}
    if len(widths) > 1 or min(widths) < type_bytes(type):
        raise encoder.error(f"registers of {sorted(widths)} bytes, should be of one width, at least {type_bytes(type)}")
    return widths.pop()


def atom(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode atom.cas.b32 d, [a], b, c and red.add.f32 [a], b."""
    _atomic(encoder, instruction, plan, plan.words["t"])


def integer_atom(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode atom.add of integers: the signed and the unsigned one are the same operation."""
    _atomic(encoder, instruction, plan, f"u{plan.words['t']}")


def _atomic(encoder, instruction: Instruction, plan: Plan, type: str) -> None:
    opcode, space = instruction.opcode, plan.words["space"] or ""
    swaps, without, hinted = ".cas" in plan.handler, opcode.startswith("red"), ".L2::cache_hint" in opcode
    given = take(encoder, instruction, 3 + swaps - without + hinted)
    to, address, *values = (SINK, *given) if without else given
    where = encoder.address(address, space)
    sources = [encoder.source(value, type) for value in values[: 1 + swaps]]
    target = wanted(encoder, to, type)
    encoder.emit(plan.handler, [SPACES[space], *where, target, sources[0], sources[1] if swaps else NONE])


def cp_async(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode cp.async.ca.shared.global [to], [from], bytes, last.

    `last` is the number of bytes of the source, or a predicate that says whether the source is
    ignored.
    """
    to, source, size, *more = take(encoder, instruction, 3, 4, 5)
    if ".L2::cache_hint" in instruction.opcode and more:
        more = more[:-1]
    if (
        not isinstance(size, Immediate)
        or size.value not in (4, 8, 16)
        or (".cg" in instruction.opcode and size.value != 16)
    ):
        raise encoder.error("the size should be 4, 8 or 16 bytes, with .cg 16")
    filled = ignored = NONE
    if more:
        if isinstance(more[0], Not) or (isinstance(more[0], Register) and not more[0].bytes):
            ignored = encoder.source(more[0], "pred")
        else:
            filled = encoder.source(more[0], "u32")
    places = [*encoder.address(to, "shared"), *encoder.address(source, "global")]
    encoder.emit(plan.handler, [*places, size.value, filled, ignored])


def wait_group(encoder, instruction: Instruction, plan: Plan) -> None:
    (most,) = take(encoder, instruction, 1)
    if not isinstance(most, Immediate) or most.value < 0:
        raise encoder.error("the number of groups should be a number")
    encoder.emit(plan.handler, [most.value])


def cvta(encoder, instruction: Instruction, plan: Plan) -> None:
    """Convert between a generic address and an address in a space; for global memory they are the
    same.
    """
    to, value = take(encoder, instruction, 2)
    source = encoder.source(value, "b64")
    encoder.emit(plan.handler, [encoder.destination(to, "u64"), source])


def policy(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode a cache policy as a number that nothing reads."""
    encoder.emit(
        plan.handler, [encoder.destination(instruction.operands[0], "b64"), encoder.source(Immediate(0), "b64")]
    )


def ldmatrix(encoder, instruction: Instruction, plan: Plan) -> None:
    to, address = take(encoder, instruction, 2)
    _matrices(encoder, instruction, plan, address, to, encoder.destination)


def stmatrix(encoder, instruction: Instruction, plan: Plan) -> None:
    address, values = take(encoder, instruction, 2)
    _matrices(encoder, instruction, plan, address, values, encoder.source)


def _matrices(encoder, instruction: Instruction, plan: Plan, address, registers, slot: Callable) -> None:
    registers, count = as_tuple(registers), int(plan.words["x"][1:])
    if len(registers) != count:
        raise encoder.error(f"takes {count} registers, has {len(registers)}")
    where = encoder.address(address, "shared" if ".shared" in instruction.opcode else "")
    encoder.emit(plan.handler, [*where, *(slot(one, "b32") for one in registers)])
