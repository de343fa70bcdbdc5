"""Approximations are within the error that the PTX manual allows, because they are rounded once.

Infinities, zeros, NaN and subnormals follow the manual's tables. mpmath is the reference.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from tests.emulator.ptx.opcodes import Op, check, crossed, names, run
from tests.emulator.ptx.rounding import F32, F64, FORMATS
from tests.emulator.ptx.test_opcodes_floats import bits_of

INF, NAN = math.inf, math.nan
FUNCTIONS = {
    "ex2": lambda x: mpmath.power(2, x), "lg2": lambda x: mpmath.log(x, 2), "sin": mpmath.sin, "cos": mpmath.cos,
    "tanh": mpmath.tanh, "rcp": lambda x: 1 / x, "sqrt": mpmath.sqrt, "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}  # fmt: skip
# The manual's tables: f(-inf), f(-1), f(-0), f(+0), f(+inf). None means that the value is computed.
TABLES = {
    "ex2": (0.0, None, 1.0, 1.0, INF), "lg2": (NAN, NAN, -INF, -INF, INF), "sin": (NAN, None, -0.0, 0.0, NAN),
    "cos": (NAN, None, 1.0, 1.0, NAN), "tanh": (-1.0, None, -0.0, 0.0, 1.0), "rcp": (-0.0, None, -INF, INF, 0.0),
    "sqrt": (NAN, NAN, -0.0, 0.0, INF), "rsqrt": (NAN, NAN, -INF, INF, 0.0),
}  # fmt: skip


def value_of(word: str, x):
    """Return a value that is exact enough: a float for special values, and otherwise a number of
    mpmath.
    """
    if isinstance(x, float):  # infinite, NaN, zero
        below, _, minus, plus, above = TABLES[word]
        if math.isnan(x):
            return NAN
        return (below if x < 0 else above) if x else (minus if math.copysign(1, x) < 0 else plus)
    if x < 0 and TABLES[word][1] is not None:
        return TABLES[word][1]
    with mpmath.workprec(120):
        if word == "ex2" and abs(x) > 5000:
            return 0.0 if x < 0 else INF
        result = FUNCTIONS[word](mpmath.mpf(x.numerator) / x.denominator)
        return to_fraction(result) or 0.0


def to_fraction(x):
    sign, mantissa, exponent, _ = x._mpf_
    return (-1 if sign else 1) * Fraction(int(mantissa)) * Fraction(2) ** exponent


def approximate_names() -> list[str]:
    return [n for n in names(*FUNCTIONS) if ".approx" in n and not n.endswith("f64")]


@pytest.mark.parametrize("type", ["f32", "f16", "f16x2", "bf16", "bf16x2"])
def test_approximations(type):
    format = FORMATS[type.removesuffix("x2")]
    opcodes = [n for n in approximate_names() if n.split(".")[-1] == type]
    assert opcodes
    bits = bits_of(format, 30)
    wanted = {}
    for name in opcodes:
        word, ftz = name.split(".")[0], "ftz" in name
        wanted[name] = [format.encode(value_of(word, format.value(b, ftz)), ftz=ftz) for b in bits.tolist()]
    if type.endswith("x2"):
        bits = bits | bits[::-1].astype(np.uint32) << np.uint32(16)
        wanted = {n: [x | y << 16 for x, y in zip(r, r[::-1], strict=True)] for n, r in wanted.items()}
    check(run([Op(n, 8 * bits.itemsize) for n in opcodes], [bits]), wanted, [bits])


def test_known_answers():
    """These values were computed by hand: 2**x at the limits of its range, with and without flushed
    subnormals.
    """
    x = np.array(
        [0xC3150000, 0xC2FC0000, 0x7F800000, 0xFF800000, 0x00000001, 0x42FE0000, 0x43000000, 0x7FC00000], np.uint32
    )
    wanted = {  # for -149, -126, inf, -inf, the smallest subnormal, 127, 128, NaN
        "ex2.approx.f32": [1, 0x00800000, 0x7F800000, 0, 0x3F800000, 0x7F000000, 0x7F800000, 0x7FFFFFFF],
        "ex2.approx.ftz.f32": [0, 0x00800000, 0x7F800000, 0, 0x3F800000, 0x7F000000, 0x7F800000, 0x7FFFFFFF],
        "lg2.approx.ftz.f32": [
            0x7FFFFFFF,
            0x7FFFFFFF,
            0x7F800000,
            0x7FFFFFFF,
            0xFF800000,
            None,
            0x40E00000,
            0x7FFFFFFF,
        ],
        "lg2.approx.f32": [0x7FFFFFFF, 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF, 0xC3150000, None, 0x40E00000, 0x7FFFFFFF],
    }
    check(run([Op(n, 32) for n in wanted], [x]), wanted, [x])


def test_quotients():
    """div.full covers the full range. div.approx gives 0 for a divisor above 2**126, and NaN if the
    dividend is infinite.
    """
    a, b = crossed(bits_of(F32, 4), bits_of(F32, 4))
    wanted = {}
    for name in ("div.full.f32", "div.full.ftz.f32", "div.approx.f32", "div.approx.ftz.f32"):
        ftz = "ftz" in name
        results = []
        for x, y in zip(a.tolist(), b.tolist(), strict=True):
            u, v = np.float64(F32.value(x, ftz)), np.float64(F32.value(y, ftz))
            with np.errstate(all="ignore"):
                large = "approx" in name and math.isfinite(v) and abs(v) > 2.0**126
                q = u * np.copysign(0.0, v) if large else u / v
            results.append(F32.encode(float(q), ftz=ftz))
        wanted[name] = results
    check(run([Op(n, 32) for n in wanted], [a, b]), wanted, [a, b])


def test_float64():
    """rsqrt is right to the last digits. The .ftz forms are coarse: 20 bits, and the lower half of
    the result is zero.
    """
    bits = bits_of(F64, 40)
    opcodes = ["rsqrt.approx.f64", "rsqrt.approx.ftz.f64", "rcp.approx.ftz.f64"]
    got = run([Op(n, 64) for n in opcodes], [bits])
    for name, results in got.items():
        ftz = "ftz" in name
        for given, result in zip(bits.tolist(), results, strict=True):
            x = F64.value(given & ~0xFFFFFFFF if ftz else given, ftz)
            want, have = value_of(name.split(".")[0], x), F64.value(result)
            assert not ftz or result & 0xFFFFFFFF == 0, (name, hex(given))
            if isinstance(want, float):
                assert (math.isnan(want) and math.isnan(have)) or F64.encode(want) == result, (name, hex(given), have)
            elif ftz and abs(want) < F64.least_normal:
                assert have == 0, (name, hex(given), have)
            else:
                assert abs(have / want - 1) < (2**-20 if ftz else 2**-51), (name, hex(given), have)
