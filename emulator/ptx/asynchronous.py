"""Instructions whose work goes on beside the threads that issue it: wgmma, bulk copies; and
mbarriers, which say when it has ended.

Each function encodes one family of the table in instructions.py.
"""

from __future__ import annotations

from flash_attest.emulator.ptx.access import wait_group
from flash_attest.emulator.ptx.families import NONE, as_tuple, take
from flash_attest.emulator.ptx.rows import Plan
from flash_attest.emulator.ptx.syntax import SINK, Function, Immediate, Instruction, Pair, Register

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
    encoder.reads.extend(encoder.owned)
    wait_group(encoder, instruction, plan)


# ---- mbarriers -----------------------------------------------------------------------------------


def mbarrier(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode mbarrier.init.shared.b64 [a], count and mbarrier.inval.shared.b64 [a]."""
    address, *count = take(encoder, instruction, 2 if plan.handler.endswith("init") else 1)
    encoder.emit(plan.handler, [*encoder.address(address, "shared"), *(encoder.source(one, "u32") for one in count)])


def arrive(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode mbarrier.arrive.shared.b64 state, [a], count and mbarrier.arrive.expect_tx.shared.b64
    state, [a], bytes. state may be _.
    """
    expects = ".expect_tx" in instruction.opcode
    state, address, *number = take(encoder, instruction, *((3,) if expects else (2, 3)))
    where = encoder.address(address, "shared")
    number = encoder.source(number[0], "u32") if number else NONE
    count, bytes = (NONE, number) if expects else (number, NONE)
    if state is not SINK and "::cluster" in instruction.opcode:
        raise encoder.error("an arrival in another block gives no state, write _")
    to = NONE if state is SINK else encoder.destination(state, "b64")
    encoder.emit(plan.handler, [*where, count, bytes, to, _is_wide(plan)])


def expect(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [a], bytes."""
    address, bytes = take(encoder, instruction, 2)
    encoder.emit(plan.handler, [*encoder.address(address, "shared"), encoder.source(bytes, "u32")])


def mbarrier_wait(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode mbarrier.try_wait.parity.shared.b64 p, [a], parity, hint; without .parity a state."""
    done, address, phase, *_ = take(encoder, instruction, 3, 4)
    where = encoder.address(address, "shared")
    phase = encoder.source(phase, "u32" if ".parity" in instruction.opcode else "b64")
    encoder.emit(plan.handler, [encoder.destination(done, "pred"), *where, phase, _is_wide(plan)])


def _is_wide(plan: Plan) -> int:
    """Return whether other blocks of the cluster take part. Without a scope it is the block's."""
    return int(plan.words["scope"] == "cluster")


def arrive_after_copies(encoder, instruction: Instruction, plan: Plan) -> None:
    (address,) = take(encoder, instruction, 1)
    encoder.emit(plan.handler, encoder.address(address, "shared"))


# ---- bulk copies ---------------------------------------------------------------------------------


def bulk(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode cp.async.bulk.shared.global.mbarrier::complete_tx::bytes [to], [from], bytes, [mbar]
    and cp.async.bulk.global.shared.bulk_group [to], [from], bytes. With .multicast::cluster
    a mask of blocks follows [mbar].
    """
    loads, sends = plan.handler.endswith(("load", "send")), plan.handler.endswith("send")
    to, source, bytes, *more = _without_hint(encoder, instruction, 4 + _is_multicast(plan) if loads else 3)
    shared, far = (to, source) if loads else (source, to)
    where = [*encoder.address(shared, "shared"), *encoder.address(far, "shared" if sends else "global")]
    encoder.emit(plan.handler, [*where, encoder.source(bytes, "u32"), *_of_mbarrier(encoder, more)])


def bulk_tensor(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode cp.async.bulk.tensor.2d.shared.global.mbarrier::complete_tx::bytes [to],
    [map, {x, y}], [mbar] and cp.async.bulk.tensor.2d.global.shared.bulk_group [map, {x, y}],
    [from].
    """
    loads = plan.handler.endswith("load")
    first, second, *more = _without_hint(encoder, instruction, 3 + _is_multicast(plan) if loads else 2)
    shared, tensor = (first, second) if loads else (second, first)
    rank = int(plan.words["rank"])
    if tensor.__class__ is not Pair or len(as_tuple(tensor.second)) != rank:
        raise encoder.error(f"the tensor should be [map, {{{rank} coordinates}}]")
    corner = [encoder.source(one, "s32") for one in as_tuple(tensor.second)]
    where = [*encoder.address(shared, "shared"), *encoder.address(tensor.first, "")]
    encoder.emit(plan.handler, [rank, *where, *corner, *_of_mbarrier(encoder, more)])


def _without_hint(encoder, instruction: Instruction, count: int) -> tuple:
    return take(encoder, instruction, count + (".L2::cache_hint" in instruction.opcode))[:count]


def _is_multicast(plan: Plan) -> bool:
    return plan.words.get("many") is not None


def _of_mbarrier(encoder, operands: list) -> list:
    """Return the address of an mbarrier and the mask of blocks, for the operands of a load."""
    if not operands:
        return []
    address, *mask = operands
    return [*encoder.address(address, "shared"), encoder.source(mask[0], "u16") if mask else NONE]


def setmaxnreg(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode setmaxnreg.inc.sync.aligned.u32 count. Registers are not counted here."""
    (count,) = take(encoder, instruction, 1)
    if count.__class__ is not Immediate or count.value not in range(24, 257, 8):
        raise encoder.error("the number of registers should be 24 to 256, a multiple of 8")
    encoder.emit(plan.handler, [])
