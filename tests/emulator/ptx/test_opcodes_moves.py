"""Comparisons of integers, selection, moves, vectors in one register, logic of predicates,
guards.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.ptx.opcodes import Op, check, crossed, edges, names, run, signed


def test_vectors_are_packed_lowest_first():
    a = edges(32, 20)
    b = a[::-1].copy()
    ops = [Op("mov.b64", 64, "mov.b64 %d, {%a, %b};")]
    check(run(ops, [a, b]), {"mov.b64": [int(y) << 32 | int(x) for x, y in zip(a, b, strict=True)]}, [a, b])
    wide = edges(64, 20)
    ops = [
        Op("halves", 32, "mov.b64 {%d, %e}, %a;", also=32),
        Op("upper", 32, "mov.b64 {_, %d}, %a;"),
        Op("quarters", 16, "{ .reg .b16 %q1, %q2; mov.b64 {%d, %q1, %q2, %e}, %a; }", also=16),
    ]
    whole = [int(x) for x in wide]
    check(
        run(ops, [wide]),
        {
            "halves": [(x & 0xFFFFFFFF, x >> 32) for x in whole],
            "upper": [x >> 32 for x in whole],
            "quarters": [(x & 0xFFFF, x >> 48) for x in whole],
        },
        [wide],
    )


COMPARE = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip
TRUTH = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "f32": 0x3F800000}


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_comparisons(bits):
    """setp, set and the combination with another predicate are right for signed, unsigned and
    untyped operands.
    """
    sources = crossed(edges(bits, 6), edges(bits, 6, 1))
    opcodes = [n for n in names("setp", "set") if n.split(".")[-1] in (f"s{bits}", f"u{bits}", f"b{bits}")]
    assert len(opcodes) == 18 * 4
    values = list(zip(*(source.tolist() for source in sources), strict=True))
    wanted = {}
    for name in opcodes:
        first, compare, *types = name.split(".")
        truth = 1 if first == "setp" else TRUTH[types[0]]
        given = [[signed(x, bits) if types[-1][0] == "s" else x for x in v] for v in values]
        wanted[name] = [truth * COMPARE[compare](a, b) for a, b in given]
    check(run([Op(n, 1 if n.startswith("setp") else 32) for n in opcodes], sources), wanted, sources)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_selection_and_moves(bits):
    condition = np.array([0, 1, 0x80000000, 0xFFFFFFFF, 0x7FC00000, 0x80000001, 0xBF800000, 2], np.uint32)
    a, b, c = crossed(edges(bits, 0), edges(bits, 0, 1), condition)
    values = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    opcodes = [n for n in names("selp", "slct", "mov") if str(bits) in n.split(".")[-2 if "slct" in n else -1]]
    chosen = {  # chooses by the third value
        "selp": lambda c: c != 0,
        "s32": lambda c: signed(c, 32) >= 0,
        "f32": lambda c: c == 0x80000000 or c <= 0x7F800000,  # -0 counts as 0, and NaN as negative
        "ftz": lambda c: c in (0x80000000, 0x80000001) or c <= 0x7F800000,
    }
    for first in ("selp", "slct", "mov"):
        group = [n for n in opcodes if n.startswith(first)]
        wanted = {}
        for n in group:
            key = "selp" if first == "selp" else "ftz" if ".ftz" in n else n.split(".")[-1]
            wanted[n] = [x if first == "mov" or chosen[key](z) else y for x, y, z in values]
        sources, widths = ([a], None) if first == "mov" else ([a, b, c], [bits, bits, 1 if first == "selp" else 32])
        check(run([Op(n, bits) for n in group], sources, widths), wanted, sources)


def test_logic_of_predicates():
    a, b = crossed(np.array([0, 1], np.uint32), np.array([0, 1], np.uint32))
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    two = {"and.pred": lambda a, b: a & b, "or.pred": lambda a, b: a | b, "xor.pred": lambda a, b: a ^ b}
    wanted = {name: [f(*p) for p in pairs] for name, f in two.items()}
    check(run([Op(n, 1) for n in two], [a, b], [1, 1]), wanted, [a, b])
    one = {"not.pred": [1 - x for x in a.tolist()], "mov.pred": a.tolist()}
    check(run([Op(n, 1) for n in one], [a], [1]), one, [a])


def test_a_lane_that_is_not_at_the_instruction_keeps_its_value():
    a, b = edges(32, 40), edges(32, 40, 1)
    text = "{ .reg .pred %o; mov.b32 %d, %b; setp.lt.s32 %o, %a, 0; @%o add.s32 %d, %a, 5; @!%o popc.b32 %d, %d; }"
    wanted = [(x + 5) % 2**32 if x >> 31 else y.bit_count() for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    check(run([Op("guarded", 32, text)], [a, b]), {"guarded": wanted}, [a, b])
