"""Floating-point instructions round once, in every mode and format, with .ftz, .sat, .relu and .NaN
as PTX defines them.

Every handler of the machine whose first word is in ARITHMETIC runs; rounding.py computes the exact
values.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.emulator.ptx import rounding
from tests.emulator.ptx.opcodes import UNSIGNED, Op, check, crossed, names, run
from tests.emulator.ptx.rounding import FORMATS, Format, add, divide, extreme, multiply, negative, root

# name -> f(mode, words, *values)
ARITHMETIC = {
    "add": lambda mode, w, a, b: add(a, b, mode),
    "sub": lambda mode, w, a, b: add(a, -b, mode),
    "mul": lambda mode, w, a, b: multiply(a, b),
    "fma": lambda mode, w, a, b, c: add(multiply(a, b), c, mode),
    "mad": lambda mode, w, a, b, c: add(multiply(a, b), c, mode),
    "div": lambda mode, w, a, b: divide(a, b),
    "rcp": lambda mode, w, a: divide(rounding.Fraction(1), a),
    "sqrt": lambda mode, w, a: root(a),
    "min": lambda mode, w, a, b: with_sign(w, a, b, False),
    "max": lambda mode, w, a, b: with_sign(w, a, b, True),
}
SOURCES = {word: f.__code__.co_argcount - 2 for word, f in ARITHMETIC.items()}


def with_sign(words, a, b, most):
    if "xorsign" not in words:
        return extreme(a, b, most, "NaN" in words)
    result = extreme(abs(a), abs(b), most, "NaN" in words)
    return -result if negative(a) != negative(b) and not math.isnan(result) else result


def bits_of(format: Format, few: int = 0) -> np.ndarray:
    """Return zeros, subnormals, borders, infinities, NaN and halfway cases, followed by random
    values.
    """
    one = format.bias << format.fraction
    special = [0, 1, 2, (1 << format.fraction) - 1, 1 << format.fraction, one, one + 1, one - 1, format.infinity - 1,
               format.infinity, format.infinity + 1 + (1 << format.fraction - 1),
               one + (1 << format.fraction), one // 2 + 3]  # fmt: skip
    drawn = np.random.default_rng(few).integers(0, 1 << 63, few, dtype=np.uint64) % np.uint64(format.sign)
    near = np.random.default_rng(few + 1).integers(one - (3 << format.fraction), one + (3 << format.fraction), few)
    both = np.concatenate([np.array(special, np.uint64), drawn, near.astype(np.uint64)])
    return np.concatenate([both, both | np.uint64(format.sign)]).astype(UNSIGNED[format.bits])


def groups() -> dict[tuple[str, int], list[str]]:
    by_type = {}
    for name in names(*ARITHMETIC):
        words = name.split(".")
        type = words[-1].removesuffix("x2")
        if type in FORMATS and not {"approx", "full"} & set(words):
            by_type.setdefault((words[-1], SOURCES[words[0]]), []).append(name)
    return by_type


def reference(name: str, values: list[tuple[int, ...]]) -> list[int]:
    words = name.split(".")
    format = FORMATS[words[-1].removesuffix("x2")]
    mode = next((word for word in words if word in ("rz", "rm", "rp")), "rn")
    ftz, sat = "ftz" in words, "sat" in words
    results = []
    for given in values:
        exact = ARITHMETIC[words[0]](mode, words, *(format.value(bits, ftz) for bits in given))
        if "relu" in words and not math.isnan(exact) and exact < 0:
            exact = 0.0
        results.append(format.encode(exact, mode, ftz, sat))
    return results


GROUPS = [(type, count) for type in ("f32", "f64") for count in (1, 2, 3)]
GROUPS += [(type, count) for type in ("f16", "f16x2", "bf16", "bf16x2") for count in (2, 3)]


def test_the_groups_are_all():
    assert sorted(groups()) == sorted(GROUPS)


@pytest.mark.parametrize("type, count", GROUPS)
def test_arithmetic(type, count):
    format = FORMATS[type.removesuffix("x2")]
    opcodes = groups()[type, count]
    sources = crossed(*(bits_of(format, {1: 60, 2: 8, 3: 2}[count] + i) for i in range(count)), most=240)
    values = list(zip(*(source.tolist() for source in sources), strict=True))
    wanted = {name: reference(name, values) for name in opcodes}
    if type == "f64":  # any NaN
        for results in wanted.values():
            results[:] = [None if r == format.nan else r for r in results]
    if type.endswith("x2"):  # the upper halves have the same values in another order
        order = np.random.default_rng(0).permutation(len(values))
        sources = [source | source[order].astype(np.uint32) << np.uint32(16) for source in sources]
        wanted = {name: [low | r[i] << 16 for low, i in zip(r, order, strict=True)] for name, r in wanted.items()}
    check(
        run([Op(name, 2 * format.bits if type.endswith("x2") else format.bits) for name in opcodes], sources),
        wanted,
        sources,
    )


def test_known_answers():
    """A few answers are written out by hand, so that the reference is not the only judge."""
    one, tiny, big = 0x3F800000, 0x33000000, 0x7F7FFFFF  # 2**-25: a quarter of the last digit of 1
    a, b = (
        np.array(v, np.uint32)
        for v in ([one, one, 1, big, 0x80000000, 0x7FC00001], [tiny, 0xB3800000, one, big, 0, one])
    )
    wanted = {
        "add.f32": [one, one - 0x1 + 0, 0x3F800000, 0x7F800000, 0, 0x7FFFFFFF],
        "add.rp.f32": [one + 1, one - 1, one + 1, 0x7F800000, 0, 0x7FFFFFFF],
        "add.rz.f32": [one, one - 1, one, big, 0, 0x7FFFFFFF],
        "mul.ftz.f32": [tiny, 0xB3800000, 0, 0x7F800000, 0x80000000, 0x7FFFFFFF],
        "mul.sat.f32": [tiny, 0, 1, one, 0, 0],
        "min.f32": [tiny, 0xB3800000, 1, big, 0x80000000, one],
        "max.NaN.f32": [one, one, one, big, 0, 0x7FFFFFFF],
    }
    check(run([Op(name, 32) for name in wanted], [a, b]), wanted, [a, b])
    # (1 + 2**-12)**2 - (1 + 2**-11) is 2**-24 if it is rounded once, and 0 if the product is
    # rounded first.
    x, c = np.array([0x3F800800], np.uint32), np.array([0xBF801000], np.uint32)
    check(run([Op("fma.rn.f32", 32)], [x, x, c]), {"fma.rn.f32": [0x33800000]}, [x, x, c])


def test_a_product_and_sum_of_bfloat16_is_rounded_once():
    """(1 + 2**-7) * 1.5 is halfway between two bfloat16 numbers. Adding 2**-100 decides, although
    no float64 holds both.
    """
    a, b, c = (np.array(v, np.uint16) for v in ([0x3F81] * 3, [0x3FC0] * 3, [0, 0x0D80, 0x8D80]))
    wanted = {"fma.rn.bf16": [0x3FC2, 0x3FC2, 0x3FC1]}
    check(run([Op("fma.rn.bf16", 16)], [a, b, c]), wanted, [a, b, c])


SIGNS = {"abs": lambda x, sign: x & ~sign, "neg": lambda x, sign: x ^ sign}


@pytest.mark.parametrize("type", ["f16", "f16x2", "bf16", "bf16x2", "f32", "f64"])
def test_signs(type):
    format = FORMATS[type.removesuffix("x2")]
    bits = bits_of(format, 10)
    opcodes = [n for n in names(*SIGNS) if n.split(".")[-1] == type]
    wanted = {}
    for name in opcodes:
        flushed = [b & format.sign if "ftz" in name and not b & format.infinity else b for b in bits.tolist()]
        wanted[name] = [SIGNS[name.split(".")[0]](b, format.sign) for b in flushed]
    if type.endswith("x2"):
        bits = bits | bits[::-1].astype(np.uint32) << np.uint32(16)
        wanted = {n: [x | y << 16 for x, y in zip(r, r[::-1], strict=True)] for n, r in wanted.items()}
    check(run([Op(n, 8 * bits.itemsize) for n in opcodes], [bits]), wanted, [bits])


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_copysign_and_classes(type):
    format = FORMATS[type]
    a, b = crossed(bits_of(format, 3), bits_of(format, 3))
    name = f"copysign.{type}"
    wanted = {name: [x & format.sign | y & ~format.sign for x, y in zip(a.tolist(), b.tolist(), strict=True)]}
    check(run([Op(name, format.bits)], [a, b]), wanted, [a, b])
    classes = {
        "finite": lambda v: math.isfinite(v), "infinite": lambda v: math.isinf(v), "number": lambda v: not math.isnan(v),
        "notanumber": lambda v: math.isnan(v), "normal": lambda v: math.isfinite(v) and abs(v) >= format.least_normal,
        "subnormal": lambda v: 0 < abs(v) < format.least_normal,
    }  # fmt: skip
    wanted = {f"testp.{n}.{type}": [int(f(format.value(x))) for x in a.tolist()] for n, f in classes.items()}
    check(run([Op(n, 1) for n in wanted], [a]), wanted, [a])


COMPARE = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
           "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}  # fmt: skip
ONE = {
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "f32": 0x3F800000,
    "u16": 0xFFFF,
    "s16": 0xFFFF,
    "u32": 0xFFFFFFFF,
    "s32": 0xFFFFFFFF,
}


def compared(compare: str, a: float, b: float) -> bool:
    unordered = math.isnan(a) or math.isnan(b)
    if compare in ("num", "nan"):
        return unordered == (compare == "nan")
    return compare.endswith("u") if unordered else COMPARE[compare[:2]](a, b)


@pytest.mark.parametrize("type", ["f16", "f16x2", "bf16", "bf16x2", "f32", "f64"])
def test_comparisons(type):
    """setp and set are right in all 14 orders. With NaN, the orders that end in u hold."""
    format = FORMATS[type.removesuffix("x2")]
    sources = crossed(bits_of(format, 1), bits_of(format, 1), most=300)
    values = list(zip(*(source.tolist() for source in sources), strict=True))
    pair = type.endswith("x2")
    opcodes = [n for n in names("setp", "set") if n.split(".")[-1] == type]
    assert len({n.split(".")[1] for n in opcodes}) == 14
    order = np.random.default_rng(0).permutation(len(values))
    ops, wanted = [], {}
    for name in opcodes:
        first, compare, *rest = name.split(".")
        holds = [compared(compare, *(format.value(x, "ftz" in rest) for x in v)) for v in values]
        to = 32 if pair else {"u16": 16, "s16": 16, "f16": 16, "bf16": 16}.get(rest[-2] if len(rest) > 1 else "", 32)
        one = ONE.get(rest[-2].removesuffix("x2"), 0) if first == "set" else 1
        if not pair:
            ops.append(Op(name, 1 if first == "setp" else to))
            wanted[name] = [int(h) * one for h in holds]
        elif first == "setp":
            ops.append(Op(name, 1, f"{name} %d|%e, %a, %b;", also=1))
            wanted[name] = [(int(h), int(holds[i])) for h, i in zip(holds, order, strict=True)]
        else:
            one = 0xFFFF if rest[-2] in ("u32", "s32") else one
            ops.append(Op(name, 32))
            wanted[name] = [h * one | holds[i] * one << 16 for h, i in zip(holds, order, strict=True)]
    if pair:
        sources = [source | source[order].astype(np.uint32) << np.uint32(16) for source in sources]
    check(run(ops, sources), wanted, sources)
