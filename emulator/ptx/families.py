"""Instructions whose operands follow no fixed pattern: each function encodes one family of the
table (instructions.py).
"""

from __future__ import annotations

from flash_attest.emulator.ptx.handlers import CLOCK, COMBINE, LOW_HALF, MOVE_PREDICATE, NOT, PACK, UNPACK
from flash_attest.emulator.ptx.rows import Plan
from flash_attest.emulator.ptx.syntax import SINK, Instruction, Label, Not, Pair, Register, Special, type_bytes

NONE = -(2**31)


def take(encoder, instruction: Instruction, *counts: int) -> tuple:
    if len(instruction.operands) not in counts:
        wanted = " or ".join(map(str, counts))
        raise encoder.error(f"takes {wanted} operands, has {len(instruction.operands)}")
    return instruction.operands


def _two(operand) -> tuple:
    """Split d|p into (d, p); d alone gives (d, None)."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


def wanted(encoder, operand, type: str):
    """Return a destination's slot; NONE for a sink."""
    return NONE if operand is None or operand is SINK else encoder.destination(operand, type)


def as_tuple(operand) -> tuple:
    return operand if operand.__class__ is tuple else (operand,)


def _predicate(encoder, operand) -> list:
    """Return [slot, whether it is negated]."""
    negated = isinstance(operand, Not)
    return [encoder.source(operand.predicate if negated else operand, "pred"), int(negated)]


# ---- comparison, moves, conversion ---------------------------------------------------------------


def setp(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode setp.lt.s32 p, a, b and setp.lt.and.f32 p|q, a, b, !c.

    The second computes p = (a < b) and !c, q = !(a < b) and !c.
    """
    op, type, handler = plan.words["op"], plan.words["t"], plan.handler
    to, a, b, *c = take(encoder, instruction, 4 if op else 3)
    p, q = _two(to)
    if q is None and not op:
        encoder.emit(handler, [encoder.destination(p, "pred"), encoder.source(a, type), encoder.source(b, type)])
        return
    guard = instruction.guard
    if guard is not None:  # one of the steps may overwrite the guard
        guard = encoder.temporary(0)
        encoder.emit(
            MOVE_PREDICATE, [encoder.destination(guard, "pred"), encoder.source(instruction.guard, "pred")], plain=True
        )
    # Results go to temporaries, because p or q may be a source of a later step, as in setp.lt.and
    # p|q, a, b, p.
    true, false = encoder.temporary(0), encoder.temporary(0)
    sources = [encoder.source(a, type), encoder.source(b, type)]
    encoder.emit(handler, [encoder.destination(true, "pred"), *sources], guard=guard)
    results = [(p, true)]
    if q is not None:
        encoder.emit(NOT, [encoder.destination(false, "pred"), encoder.source(true, "pred")], guard=guard)
        results.append((q, false))
    if op:
        combined = []
        for to, value in results:
            temporary = encoder.temporary(0)
            other = encoder.source(c[0], "pred")
            encoder.emit(
                COMBINE[op], [encoder.destination(temporary, "pred"), encoder.source(value, "pred"), other], guard=guard
            )
            combined.append((to, temporary))
        results = combined
    for to, value in results:
        if to is not SINK:
            encoder.emit(MOVE_PREDICATE, [encoder.destination(to, "pred"), encoder.source(value, "pred")], guard=guard)


def setp_pair(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode setp.lt.f16x2 p|q, a, b: p is for the low half, q for the high half."""
    to, a, b = take(encoder, instruction, 3)
    p, q = _two(to)
    type = plan.words["t"]
    sources = [encoder.source(a, type), encoder.source(b, type)]
    encoder.emit(plan.handler, [wanted(encoder, p, "pred"), wanted(encoder, q, "pred"), *sources])


def mov(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode a move: of one register, of several to one, of one to several, or of a clock."""
    to, value = take(encoder, instruction, 2)
    type = plan.words["t"]
    width = type_bytes(type)
    if to.__class__ is tuple:
        part = _part(encoder, width, to)
        source = encoder.source(value, type)
        parts = [wanted(encoder, one, part) for one in to]
        encoder.emit(UNPACK[f"{part}x{len(to)}"], [*parts, source])
    elif value.__class__ is tuple:
        part = _part(encoder, width, value)
        parts = [encoder.source(one, part) for one in value]
        encoder.emit(PACK[f"{part}x{len(value)}"], [encoder.destination(to, type), *parts])
    elif value.__class__ is Special and value.name in (
        "%clock",
        "%clock64",
        "%globaltimer",
        "%globaltimer_lo",
        "%clock_hi",
    ):
        encoder.emit(CLOCK, [encoder.destination(to, type), width])
    elif value.__class__ is Special and width == 2:
        encoder.emit(LOW_HALF, [encoder.destination(to, type), 2, encoder.source(value, "u32"), 4])
    else:
        encoder.emit(plan.handler, [encoder.destination(to, type), encoder.source(value, type)])


def _part(encoder, width: int, parts: tuple) -> str:
    if len(parts) not in (2, 4) or width // len(parts) == 0:
        raise encoder.error(f"{len(parts)} parts of {width} bytes")
    return f"b{8 * width // len(parts)}"


def cvt(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode cvt.u64.u32 d, a, whose registers may be wider than the types.

    With two sources: d = {b, a}, a in the upper half.
    """
    d, t = plan.words["d"], plan.words["t"]
    to, *values = take(encoder, instruction, 3 if d.endswith("x2") and t == "f32" else 2)
    # The handlers in packed.cpp expect registers that are exactly as wide as the types.
    if d.endswith("x2") or t.endswith("x2") or d == "tf32":
        encoder.emit(
            plan.handler,
            [encoder.destination(to, f"b{8 * _bytes(d)}"), *(encoder.source(v, _same(t)) for v in values)],
        )
        return
    sources = []
    for value in values:
        bytes = value.bytes if value.__class__ is Register else max(2, _bytes(t))
        _check_wide(encoder, value, bytes, t)
        sources += [encoder.source(value, _same(t), bytes), bytes]
    bytes = to.bytes if to.__class__ is Register else max(2, _bytes(d))
    _check_wide(encoder, to, bytes, d)
    encoder.emit(plan.handler, [encoder.destination(to, d, bytes), bytes, *sources])


def _same(type: str) -> str:
    """Return a type of the same width that a literal can have."""
    return type if type[0] in "bsuf" and "m" not in type else f"b{8 * _bytes(type)}"


def _bytes(type: str) -> int:
    return 2 if type in ("e4m3x2", "e5m2x2") else 4 if type == "tf32" else type_bytes(type)


def _check_wide(encoder, operand, bytes: int, type: str) -> None:
    if bytes < _bytes(type) or (operand.__class__ is Register and not operand.bytes):
        raise encoder.error(f"{operand.name} is declared .{operand.type}, too narrow for .{type}")


# ---- control, warps ------------------------------------------------------------------------------


def bra(encoder, instruction: Instruction, plan: Plan) -> None:
    (label,) = take(encoder, instruction, 1)
    assert isinstance(label, Label)
    encoder.emit(plan.handler, [label])


def barrier(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode bar.sync id, threads."""
    number, *count = take(encoder, instruction, *((2,) if plan.handler.endswith("arrive") else (1, 2)))
    encoder.emit(plan.handler, [encoder.source(number, "u32"), encoder.source(count[0], "u32") if count else NONE])


def bar_red(encoder, instruction: Instruction, plan: Plan) -> None:
    """Encode bar.red.popc.u32 d, id, threads, !p."""
    to, number, *count, p = take(encoder, instruction, 3, 4)
    counted = encoder.source(count[0], "u32") if count else NONE
    target = encoder.destination(to, "u32" if plan.handler.endswith("popc") else "pred")
    encoder.emit(plan.handler, [target, encoder.source(number, "u32"), counted, *_predicate(encoder, p)])


def shfl(encoder, instruction: Instruction, plan: Plan) -> None:
    to, *values = take(encoder, instruction, 5)
    d, p = _two(to)
    sources = [encoder.source(value, "b32") for value in values]
    encoder.emit(plan.handler, [encoder.destination(d, "b32"), wanted(encoder, p, "pred"), *sources])


def vote(encoder, instruction: Instruction, plan: Plan) -> None:
    to, p, mask = take(encoder, instruction, 3)
    source = [*_predicate(encoder, p), encoder.source(mask, "b32")]
    target = encoder.destination(to, "b32" if plan.handler.endswith("ballot") else "pred")
    encoder.emit(plan.handler, [target, *source])


def elect(encoder, instruction: Instruction, plan: Plan) -> None:
    to, mask = take(encoder, instruction, 2)
    d, p = _two(to)
    source = encoder.source(mask, "b32")
    encoder.emit(plan.handler, [encoder.destination(d, "b32"), wanted(encoder, p, "pred"), source])


def match_all(encoder, instruction: Instruction, plan: Plan) -> None:
    to, value, mask = take(encoder, instruction, 3)
    d, p = _two(to)
    sources = [encoder.source(value, plan.words["t"]), encoder.source(mask, "b32")]
    encoder.emit(plan.handler, [encoder.destination(d, "b32"), wanted(encoder, p, "pred"), *sources])


# ---- matrices ------------------------------------------------------------------------------------

BITS = {"e4m3": 8, "e5m2": 8, "tf32": 32}


def mma(encoder, instruction: Instruction, plan: Plan) -> None:
    words = plan.words
    m, n, k = (int(part) for part in words["shape"][1:].replace("n", " ").replace("k", " ").split())
    sources, targets = [], []
    given = take(encoder, instruction, 4)
    for name, operand, size in zip("dabc", given, (m * n, m * k, k * n, m * n), strict=True):
        type = words[name]
        bits = BITS.get(type) or 8 * type_bytes(type)
        # A register holds 32 bits of a matrix in each of 32 lanes, 1024 bits in all. A register of
        # doubles holds one element in each lane.
        operand, count = as_tuple(operand), max(1, size * min(bits, 32) // 1024)
        if len(operand) != count:
            raise encoder.error(f"{name} takes {count} registers, has {len(operand)}")
        width = type if bits >= 32 and type != "tf32" else "b32"  # smaller elements share a register
        if name == "d":
            targets = operand
            kind = width
        else:
            sources += [encoder.source(one, width) for one in operand]
    encoder.emit(plan.handler, [*(encoder.destination(one, kind) for one in targets), *sources])


def nothing(encoder, instruction: Instruction, plan: Plan) -> None:
    """Emit nothing, because the instruction computes nothing and has no effect on other threads."""
