"""Instructions whose work goes on beside the threads that issue it: wgmma.

Each function encodes one family of the table in instructions.py.
"""

from __future__ import annotations

from flash_attest.emulator.ptx.families import as_tuple, take
from flash_attest.emulator.ptx.rows import Plan
from flash_attest.emulator.ptx.syntax import Function, Immediate, Instruction, Register

PRODUCT, TRANSPOSED, SIGNS = "wgmma.mma_async", 2, 2  # flags of a wgmma: signs of A and B, then transpositions


def owned_registers(function: Function) -> dict[int, int]:
    """Return the number of each register that some wgmma owns until it has been waited for: its
    accumulators, and A if it is in registers.
    """
    numbers: dict[int, int] = {}
    for instruction in function.instructions:
        if instruction.opcode.startswith(PRODUCT):
            for operand in instruction.operands[:2]:
                for one in as_tuple(operand):
                    if one.__class__ is Register and one.bytes == 4:  # not a descriptor, of 8 bytes
                        numbers.setdefault(one.number, len(numbers))
    return numbers


def wgmma(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d, ..}, a, b, p, 1, -1, 0, 1.

    `a` is a descriptor or four registers, `p` says whether to add to d. The last numbers are the
    signs of A and B, and whether A (unless it is in registers) and B are transposed, which only
    elements of two bytes can be.
    """
    in_registers = len(instruction.operands) > 1 and instruction.operands[1].__class__ is tuple
    transposed = () if "tf32" in plan.handler else (None,) * (TRANSPOSED - in_registers)
    d, a, b, adds, *flags = take(encoder, instruction, 4 + SIGNS + len(transposed))
    if any(flag.__class__ is not Immediate for flag in flags):
        raise encoder.error("signs and transpositions should be numbers")
    sign_a, sign_b, *turned = (flag.value for flag in flags)
    turned = [0] * (TRANSPOSED - len(turned)) + turned
    if not {sign_a, sign_b} <= {1, -1} or not {*turned} <= {0, 1}:
        raise encoder.error("signs should be 1 or -1, transpositions 0 or 1")
    d, n = as_tuple(d), int(plan.words["n"])
    count = n // 2 if plan.words["d"] == "f32" else n // 4
    if len(d) != count:
        raise encoder.error(f"d takes {count} registers, has {len(d)}")
    if in_registers and len(a) != 4:
        raise encoder.error(f"a takes 4 registers, has {len(a)}")
    adds = encoder.source(adds, "pred")
    left = [encoder.source(one, "b32") for one in a] if in_registers else [encoder.source(a, "b64"), 0, 0, 0]
    right = encoder.source(b, "b64")
    sums = [encoder.destination(one, "b32") for one in d]
    for one in d:
        encoder.source(one, "b32")
    numbers = [encoder.owned[one.number] for one in (*d, *(a if in_registers else ()))]
    encoder.emit(plan.handler, [n, int(in_registers), *turned, sign_a, sign_b, adds, *left, right, *sums, *numbers])


def wgmma_wait(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode wgmma.wait_group.sync.aligned n.

    Accumulators are written here at the latest, so their slots belong to them until here.
    """
    (most,) = take(encoder, instruction, 1)
    if most.__class__ is not Immediate or most.value < 0:
        raise encoder.error("the number of groups should be a number")
    encoder.reads.extend(encoder.owned)
    encoder.emit(plan.handler, [most.value])
