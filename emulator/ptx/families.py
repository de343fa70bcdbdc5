"""Instructions whose operands follow no fixed pattern: each function encodes one family of the table (instructions.py)."""

from __future__ import annotations

from emulator.ptx.instructions import Plan
from emulator.ptx.syntax import SINK, Immediate, Instruction, Label, Not, Pair, Register, Special, type_bytes

NONE = -(2**31)


def _take(encoder, instruction: Instruction, *counts: int) -> tuple:
    if len(instruction.operands) not in counts:
        wanted = " or ".join(map(str, counts))
        raise encoder.error(f"takes {wanted} operands, has {len(instruction.operands)}")
    return instruction.operands


def _two(operand) -> tuple:
    """(d, p) of d|p; (d, None) of d."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


def _wanted(encoder, operand, type: str):
    """A destination, or NONE if there is none."""
    return NONE if operand is None or operand is SINK else encoder.destination(operand, type)


def _list(operand) -> tuple:
    return operand if operand.__class__ is tuple else (operand,)


def _predicate(encoder, operand) -> list:
    """[slot, whether it is negated]"""
    negated = isinstance(operand, Not)
    return [encoder.source(operand.predicate if negated else operand, "pred"), int(negated)]


# ---- comparison, moves, conversion ------------------------------------------------------------------------------------


def setp(encoder, instruction: Instruction, plan: Plan) -> None:
    """setp.lt.s32 p, a, b; setp.lt.and.f32 p|q, a, b, !c: p = (a < b) and !c, q = !(a < b) and !c."""
    op, type, handler = plan.words["op"], plan.words["t"], plan.handler
    to, a, b, *c = _take(encoder, instruction, 4 if op else 3)
    p, q = _two(to)
    if q is None and not op:
        encoder.emit(handler, [encoder.destination(p, "pred"), encoder.source(a, type), encoder.source(b, type)])
        return
    guard = instruction.guard
    if guard is not None:  # one of the steps may overwrite it
        guard = encoder.temporary(0)
        encoder.emit(
            "mov.pred", [encoder.destination(guard, "pred"), encoder.source(instruction.guard, "pred")], plain=True
        )
    true, false = encoder.temporary(0), encoder.temporary(0)
    sources = [encoder.source(a, type), encoder.source(b, type)]
    encoder.emit(handler, [encoder.destination(true, "pred"), *sources], guard=guard)
    results = [(p, true)]
    if q is not None:
        encoder.emit("not.pred", [encoder.destination(false, "pred"), encoder.source(true, "pred")], guard=guard)
        results.append((q, false))
    if op:
        combined = []
        for to, value in results:
            made = encoder.temporary(0)
            other = encoder.source(c[0], "pred")
            encoder.emit(
                f"{op}.pred", [encoder.destination(made, "pred"), encoder.source(value, "pred"), other], guard=guard
            )
            combined.append((to, made))
        results = combined
    for to, value in results:
        if to is not SINK:
            encoder.emit("mov.pred", [encoder.destination(to, "pred"), encoder.source(value, "pred")], guard=guard)


def setp_pair(encoder, instruction: Instruction, plan: Plan) -> None:
    """setp.lt.f16x2 p|q, a, b: p is of the low half, q of the high one."""
    to, a, b = _take(encoder, instruction, 3)
    p, q = _two(to)
    type = plan.words["t"]
    sources = [encoder.source(a, type), encoder.source(b, type)]
    encoder.emit(plan.handler, [_wanted(encoder, p, "pred"), _wanted(encoder, q, "pred"), *sources])


def mov(encoder, instruction: Instruction, plan: Plan) -> None:
    """A move; of several registers to one, or of one to several; of a clock."""
    to, value = _take(encoder, instruction, 2)
    type = plan.words["t"]
    width = type_bytes(type)
    if to.__class__ is tuple:
        part = _part(encoder, width, to)
        source = encoder.source(value, type)
        parts = [_wanted(encoder, one, part) for one in to]
        encoder.emit(f"unpack.{part}x{len(to)}", [*parts, source])
    elif value.__class__ is tuple:
        part = _part(encoder, width, value)
        parts = [encoder.source(one, part) for one in value]
        encoder.emit(f"pack.{part}x{len(value)}", [encoder.destination(to, type), *parts])
    elif value.__class__ is Special and value.name in (
        "%clock",
        "%clock64",
        "%globaltimer",
        "%globaltimer_lo",
        "%clock_hi",
    ):
        encoder.emit("clock", [encoder.destination(to, type), width])
    elif value.__class__ is Special and width == 2:
        encoder.emit("cvt.u16.u32", [encoder.destination(to, type), 2, encoder.source(value, "u32"), 4])
    else:
        encoder.emit(plan.handler, [encoder.destination(to, type), encoder.source(value, type)])


def _part(encoder, width: int, parts: tuple) -> str:
    if len(parts) not in (2, 4) or width // len(parts) == 0:
        raise encoder.error(f"{len(parts)} parts of {width} bytes")
    return f"b{8 * width // len(parts)}"


def cvt(encoder, instruction: Instruction, plan: Plan) -> None:
    """cvt.u64.u32 d, a: registers may be wider than the types. With two sources: d = {b, a}, a in the upper half."""
    d, t = plan.words["d"], plan.words["t"]
    to, *values = _take(encoder, instruction, 3 if d.endswith("x2") and t == "f32" else 2)
    if d.endswith("x2") or t.endswith("x2") or d == "tf32":  # packed.cpp: registers are exactly as wide as the types
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
    """A type that literals can have."""
    return type if type[0] in "bsuf" and "m" not in type else f"b{8 * _bytes(type)}"


def _bytes(type: str) -> int:
    return 2 if type in ("e4m3x2", "e5m2x2") else 4 if type == "tf32" else type_bytes(type)


def _check_wide(encoder, operand, bytes: int, type: str) -> None:
    if bytes < _bytes(type) or (operand.__class__ is Register and not operand.bytes):
        raise encoder.error(f"{operand.name} is declared .{operand.type}, too narrow for .{type}")


# ---- memory -----------------------------------------------------------------------------------------------------------

SPACES = {"": 0, "global": 1, "shared": 2, "local": 3, "const": 4, "param": 5}  # enum AddressSpace of machine.h


def ld(encoder, instruction: Instruction, plan: Plan) -> None:
    hinted = ".L2::cache_hint" in instruction.opcode
    to, address, *_ = _take(encoder, instruction, 3 if hinted else 2)
    type, space = plan.words["t"], plan.words["space"] or ""
    to = _list(to)
    bytes = _check_vector(encoder, plan, to, type)
    where = encoder.address(address, space)
    targets = [encoder.destination(one, type, bytes) for one in to]
    element = type_bytes(type)
    encoder.emit("ld", [SPACES[space], *where, element, len(to), int(type[0] == "s"), bytes, *targets])


def st(encoder, instruction: Instruction, plan: Plan) -> None:
    hinted = ".L2::cache_hint" in instruction.opcode
    address, values, *_ = _take(encoder, instruction, 3 if hinted else 2)
    type, space = plan.words["t"], plan.words["space"] or ""
    values = _list(values)
    if space in ("const", "param"):
        raise encoder.refused(f"a store to .{space}")
    bytes = _check_vector(encoder, plan, values, type)
    where = encoder.address(address, space)
    sources = [encoder.source(one, type, bytes) for one in values]
    encoder.emit("st", [SPACES[space], *where, type_bytes(type), len(values), bytes, *sources])


def _check_vector(encoder, plan: Plan, operands: tuple, type: str) -> int:
    """Bytes of the registers of a load or a store: all the same."""
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
    """atom.cas.b32 d, [a], b, c; red.add.f32 [a], b."""
    _atomic(encoder, instruction, plan, plan.words["t"])


def integer_atom(encoder, instruction: Instruction, plan: Plan) -> None:
    """atom.add of signed and of unsigned integers is one operation."""
    _atomic(encoder, instruction, plan, f"u{plan.words['t']}")


def _atomic(encoder, instruction: Instruction, plan: Plan, type: str) -> None:
    opcode, space = instruction.opcode, plan.words["space"] or ""
    swaps, without, hinted = ".cas" in plan.handler, opcode.startswith("red"), ".L2::cache_hint" in opcode
    given = _take(encoder, instruction, 3 + swaps - without + hinted)
    to, address, *values = (SINK, *given) if without else given
    where = encoder.address(address, space)
    sources = [encoder.source(value, type) for value in values[: 1 + swaps]]
    target = _wanted(encoder, to, type)
    encoder.emit(plan.handler, [SPACES[space], *where, target, sources[0], sources[1] if swaps else NONE])


def cp_async(encoder, instruction: Instruction, plan: Plan) -> None:
    """cp.async.ca.shared.global [to], [from], bytes, bytes of the source, or a predicate: whether it is ignored."""
    to, source, size, *more = _take(encoder, instruction, 3, 4, 5)
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
    encoder.emit("cp.async", [*places, size.value, filled, ignored])


def wait_group(encoder, instruction: Instruction, plan: Plan) -> None:
    (most,) = _take(encoder, instruction, 1)
    if not isinstance(most, Immediate) or most.value < 0:
        raise encoder.error("the number of groups should be a number")
    encoder.emit("cp.async.wait_group", [most.value])


def cvta(encoder, instruction: Instruction, plan: Plan) -> None:
    """Between an address in a space and a generic one: for global memory they are the same."""
    to, value = _take(encoder, instruction, 2)
    source = encoder.source(value, "b64")
    encoder.emit(plan.handler, [encoder.destination(to, "u64"), source])


def policy(encoder, instruction: Instruction, plan: Plan) -> None:
    """A cache policy: a number that nothing reads."""
    encoder.emit("mov.b64", [encoder.destination(instruction.operands[0], "b64"), encoder.source(Immediate(0), "b64")])


# ---- control, warps ---------------------------------------------------------------------------------------------------


def bra(encoder, instruction: Instruction, plan: Plan) -> None:
    (label,) = _take(encoder, instruction, 1)
    assert isinstance(label, Label)
    encoder.emit("bra", [label])


def barrier(encoder, instruction: Instruction, plan: Plan) -> None:
    """bar.sync id, threads."""
    number, *count = _take(encoder, instruction, *((2,) if plan.handler.endswith("arrive") else (1, 2)))
    encoder.emit(plan.handler, [encoder.source(number, "u32"), encoder.source(count[0], "u32") if count else NONE])


def bar_red(encoder, instruction: Instruction, plan: Plan) -> None:
    """bar.red.popc.u32 d, id, threads, !p."""
    to, number, *count, p = _take(encoder, instruction, 3, 4)
    counted = encoder.source(count[0], "u32") if count else NONE
    target = encoder.destination(to, "u32" if plan.handler.endswith("popc") else "pred")
    encoder.emit(plan.handler, [target, encoder.source(number, "u32"), counted, *_predicate(encoder, p)])


def shfl(encoder, instruction: Instruction, plan: Plan) -> None:
    to, *values = _take(encoder, instruction, 5)
    d, p = _two(to)
    sources = [encoder.source(value, "b32") for value in values]
    encoder.emit(plan.handler, [encoder.destination(d, "b32"), _wanted(encoder, p, "pred"), *sources])


def vote(encoder, instruction: Instruction, plan: Plan) -> None:
    to, p, mask = _take(encoder, instruction, 3)
    source = [*_predicate(encoder, p), encoder.source(mask, "b32")]
    target = encoder.destination(to, "b32" if plan.handler.endswith("ballot") else "pred")
    encoder.emit(plan.handler, [target, *source])


def elect(encoder, instruction: Instruction, plan: Plan) -> None:
    to, mask = _take(encoder, instruction, 2)
    d, p = _two(to)
    source = encoder.source(mask, "b32")
    encoder.emit(plan.handler, [encoder.destination(d, "b32"), _wanted(encoder, p, "pred"), source])


def match_all(encoder, instruction: Instruction, plan: Plan) -> None:
    to, value, mask = _take(encoder, instruction, 3)
    d, p = _two(to)
    sources = [encoder.source(value, plan.words["t"]), encoder.source(mask, "b32")]
    encoder.emit(plan.handler, [encoder.destination(d, "b32"), _wanted(encoder, p, "pred"), *sources])


# ---- matrices ---------------------------------------------------------------------------------------------------------

BITS = {"e4m3": 8, "e5m2": 8, "tf32": 32}


def mma(encoder, instruction: Instruction, plan: Plan) -> None:
    words = plan.words
    m, n, k = (int(part) for part in words["shape"][1:].replace("n", " ").replace("k", " ").split())
    sources, targets = [], []
    given = _take(encoder, instruction, 4)
    for name, operand, size in zip("dabc", given, (m * n, m * k, k * n, m * n), strict=True):
        type = words[name]
        bits = BITS.get(type) or 8 * type_bytes(type)
        operand, count = _list(operand), max(1, size * min(bits, 32) // 1024)
        if len(operand) != count:
            raise encoder.error(f"{name} takes {count} registers, has {len(operand)}")
        width = type if bits >= 32 and type != "tf32" else "b32"
        if name == "d":
            targets = operand
            kind = width
        else:
            sources += [encoder.source(one, width) for one in operand]
    encoder.emit(plan.handler, [*(encoder.destination(one, kind) for one in targets), *sources])


def ldmatrix(encoder, instruction: Instruction, plan: Plan) -> None:
    to, address = _take(encoder, instruction, 2)
    to, count = _list(to), int(plan.words["x"][1:])
    if len(to) != count:
        raise encoder.error(f"takes {count} registers, has {len(to)}")
    where = encoder.address(address, "shared" if ".shared" in instruction.opcode else "")
    encoder.emit(plan.handler, [*where, *(encoder.destination(one, "b32") for one in to)])


def nothing(encoder, instruction: Instruction, plan: Plan) -> None:
    """Nothing is computed, and no other thread can tell."""
