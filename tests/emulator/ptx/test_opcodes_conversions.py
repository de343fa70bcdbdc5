"""cvt rounds once and clamps, for all pairs of types, roundings and flags that the machine has;
rounding.py is the reference.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.emulator.ptx.opcodes import Op, check, edges, names, run, signed
from tests.emulator.ptx.rounding import BF16, E4M3, E5M2, F16, F32, FORMATS, Format, rounded
from tests.emulator.ptx.test_opcodes_floats import bits_of

INTEGERS = [f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "su"]
MODES = {
    "rn": "rn",
    "rz": "rz",
    "rm": "rm",
    "rp": "rp",
    "rni": "rn",
    "rzi": "rz",
    "rmi": "rm",
    "rpi": "rp",
    "rna": "rna",
}


def register(type: str) -> int:
    return max(int(type.lstrip("subf")), 16)


def sources(type: str) -> np.ndarray:
    if type in FORMATS:
        format = FORMATS[type]
        halves = [
            format.encode(Fraction(n, 2))
            for n in (
                1,
                3,
                5,
                -1,
                -3,
                -5,
                255,
                511,
                -257,
                2**17 - 1,
                2**32 - 1,
                2**33 - 1,
                -(2**32),
                2**64,
                2**65,
                -(2**64),
            )
        ]
        return np.concatenate([bits_of(format, 30), np.array(halves, np.uint64).astype(bits_of(format).dtype)])
    bits = int(type[1:])
    near = [(1 << n) + d for n in (8, 9, 11, 12, 24, 25, 53, 54, 62, 63) for d in (-3, -1, 0, 1, 3) if n < bits]
    ties = [(0x801 << n) + d for n in (8, 20, 40, 51) for d in (-1, 0, 1) if n + 12 <= bits] + [
        (0x1000001 << n) + d for n in (8, 30) for d in (-1, 0, 1) if n + 25 <= bits
    ]
    return np.concatenate(
        [
            edges(register(type), 20),
            np.array([n % (1 << bits) for n in near + ties], np.uint64).astype(f"u{register(type) // 8}"),
        ]
    )


def clamped(value: int, type: str) -> int:
    bits, sign = int(type[1:]), type[0] == "s"
    return min(max(value, -(1 << bits - 1) if sign else 0), (1 << bits - sign) - 1)


def to_integer(x, to: str, source: str, mode: str) -> int:
    if math.isnan(x):  # as the manual says
        return 1 << int(to[1:]) - 1 if source == "f64" or to[1:] == "64" else 0
    if isinstance(x, float) and math.isinf(x):
        return clamped(1 << 70 if x > 0 else -(1 << 70), to)
    x = Fraction(x)
    return clamped(rounded(abs(x), mode, x < 0) * (-1 if x < 0 else 1), to)


def converted(name: str, bits: int) -> int | None:
    """Return the register of the result, as wide as its type, but at least 16 bits."""
    *words, to, source = name.split(".")[1:]
    mode = next((MODES[w] for w in words if w in MODES), "rn")
    whole = any(w in ("rni", "rzi", "rmi", "rpi") for w in words)
    ftz = "ftz" in words
    if source in FORMATS:
        x = FORMATS[source].value(bits, ftz and source == "f32")
    else:
        n = int(source[1:])
        x = signed(bits % (1 << n), n) if source[0] == "s" else bits % (1 << n)
    if to not in FORMATS:
        if source in FORMATS:
            value = to_integer(x, to, source, mode)
        else:
            n = int(to[1:])
            value = clamped(x, to) if "sat" in words else signed(x % (1 << n), n) if to[0] == "s" else x % (1 << n)
        n = int(to[1:])
        value = signed(value % (1 << n), n) if to[0] == "s" else value
        return value % (1 << register(to))
    x = x if isinstance(x, float) else Fraction(x) if x else 0.0
    if whole and isinstance(x, Fraction):
        magnitude = rounded(abs(x), mode, x < 0)
        x = Fraction(magnitude if x > 0 else -magnitude) if magnitude else math.copysign(0.0, -1 if x < 0 else 1)
    if "relu" in words and not math.isnan(x) and x < 0:
        x = 0.0
    if to == "f64" and math.isnan(x) and "sat" not in words:
        return None  # any NaN
    return FORMATS[to].encode(x, mode, ftz and to == "f32", "sat" in words)


def conversions() -> dict[str, list[str]]:
    """Return names by the type of their source."""
    by_source = {}
    for name in names("cvt"):
        to, source = name.split(".")[-2:]
        if {to, source} <= {*INTEGERS, *FORMATS} and "pack" not in name:
            by_source.setdefault(source, []).append(name)
    return by_source


@pytest.mark.parametrize("source", [*INTEGERS, *FORMATS])
def test_conversions(source):
    given = sources(source)
    opcodes = conversions()[source]
    wanted = {name: [converted(name, b) for b in given.tolist()] for name in opcodes}
    check(run([Op(n, register(n.split(".")[-2])) for n in opcodes], [given]), wanted, [given])


def test_the_sources_are_all():
    assert set(conversions()) == {*INTEGERS, *FORMATS}
    assert sum(map(len, conversions().values())) > 900


def test_registers_may_be_wider_than_the_types():
    """The upper bits of a source are ignored; a result is extended with its sign, or with zeros."""
    given = edges(64, 30)
    ops = {
        "cvt.s32.s8": lambda x: signed(x & 255, 8), "cvt.u32.u8": lambda x: x & 255,
        "cvt.s8.s32": lambda x: signed(x & 255, 8),
        "cvt.u16.u32": lambda x: x & 0xFFFF, "cvt.sat.s16.s32": lambda x: clamped(signed(x & 0xFFFFFFFF, 32), "s16"),
    }  # fmt: skip
    for to in (32, 64):
        wanted = {name: [f(x) % (1 << to) for x in given.tolist()] for name, f in ops.items()}
        check(run([Op(name, to) for name in ops], [given]), wanted, [given])


# ---- pairs, tf32, eight bits ---------------------------------------------------------------------


def narrowed(format: Format, bits: int, words: list[str], source: Format = F32) -> int:
    x = source.value(bits)
    mode = next((w for w in words if w in MODES), "rn")
    if "relu" in words and not math.isnan(x) and x < 0:
        x = 0.0
    result = format.encode(x, mode)
    if "satfinite" in words and result & ~format.sign == format.infinity:
        result -= 1
    return result


@pytest.mark.parametrize("type, format", [("f16x2", F16), ("bf16x2", BF16)])
def test_pairs_of_halves(type, format):
    """The first source becomes the upper half."""
    a = bits_of(F32, 60)
    b = np.random.default_rng(0).permutation(a)
    opcodes = [n for n in names("cvt") if n.endswith(f".{type}.f32")]
    assert len(opcodes) == 8
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    wanted = {
        n: [narrowed(format, x, n.split(".")) << 16 | narrowed(format, y, n.split(".")) for x, y in pairs]
        for n in opcodes
    }
    check(run([Op(n, 32) for n in opcodes], [a, b]), wanted, [a, b])


def test_tf32():
    """Ten bits of the fraction are kept and the others are zero; .rna rounds halfway cases away
    from zero.
    """
    format = Format(19, 11, 127)
    given = np.concatenate(
        [bits_of(F32, 60), np.array([0x3F801000, 0x3F800FFF, 0xBF801000, 0x3F803000, 0x7F7FF000], np.uint32)]
    )
    opcodes = [n for n in names("cvt") if n.endswith("tf32.f32")]
    assert len(opcodes) == 10
    wanted = {n: [narrowed(format, x, n.split(".")) << 13 for x in given.tolist()] for n in opcodes}
    for results in wanted.values():
        results[:] = [0x7FFFFFFF if r == format.nan << 13 else r for r in results]
    assert wanted["cvt.rna.tf32.f32"][-5:] == [0x3F802000, 0x3F800000, 0xBF802000, 0x3F804000, 0x7F800000]
    check(run([Op(n, 32) for n in opcodes], [given]), wanted, [given])


def byte(type: str, bits: int, words: list[str], source: Format) -> int:
    """Return the byte: e4m3 has no infinity; its largest number is 448, where other formats have a
    NaN.
    """
    format = E4M3 if type == "e4m3x2" else E5M2
    x = source.value(bits)
    if math.isnan(x):
        return 0x7F
    if "relu" in words and x < 0:
        x = 0.0
    if format is E5M2:
        return narrowed(format, bits, words, source) if x else format.encode(x)
    sign = 0x80 if math.copysign(1, float(x)) < 0 else 0
    if abs(x) > 448:
        return sign | 0x7E
    exponent = max(math.frexp(float(abs(x)))[1] - 1, -6) if x else -6
    digits = rounded(Fraction(abs(x)) / Fraction(2) ** (exponent - 3), "rn")
    return sign | min((exponent + 6 << 3) + digits, 0x7E)


def from_byte(type: str, bits: int, relu: bool) -> int:
    if bits & 0x7F == 0x7F or (type == "e5m2x2" and bits & 0x7F > 0x7C):
        return 0x7FFF
    if type == "e4m3x2" and bits & 0x78 == 0x78:
        x = Fraction((bits & 7) + 8) * 32 * (-1 if bits & 0x80 else 1)
    else:
        x = (E4M3 if type == "e4m3x2" else E5M2).value(bits)
    return F16.encode(0.0 if relu and x < 0 else x)


@pytest.mark.parametrize("type", ["e4m3x2", "e5m2x2"])
def test_eight_bits(type):
    opcodes = [n for n in names("cvt") if type in n]
    assert len(opcodes) == 6
    from_floats = [n for n in opcodes if n.endswith(f"{type}.f32")]
    values = [
        0.0,
        -0.0,
        448,
        449,
        464,
        465,
        480,
        -500,
        57344,
        61439,
        61440,
        1e9,
        2**-9,
        2**-10,
        3 * 2**-11,
        2**-16,
        2**-17,
        1.0625,
        1.1875,
        -17.5,
        math.inf,
        -math.inf,
        math.nan,
    ]
    # From two float32.
    a = np.concatenate([np.array(values, np.float32).view(np.uint32), bits_of(F32, 40)])
    b = a[::-1].copy()
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    wanted = {
        n: [byte(type, x, n.split("."), F32) << 8 | byte(type, y, n.split("."), F32) for x, y in pairs]
        for n in from_floats
    }
    check(run([Op(n, 16) for n in from_floats], [a, b]), wanted, [a, b])
    # From pairs of float16.
    halves = bits_of(F16, 60).astype(np.uint32)
    halves = halves | halves[::-1] << np.uint32(16)
    from_pairs = [n for n in opcodes if n.endswith(f"{type}.f16x2")]
    wanted = {
        n: [
            byte(type, x >> 16, n.split("."), F16) << 8 | byte(type, x & 0xFFFF, n.split("."), F16)
            for x in halves.tolist()
        ]
        for n in from_pairs
    }
    check(run([Op(n, 16) for n in from_pairs], [halves]), wanted, [halves])
    # All bytes, to pairs of float16.
    every = np.arange(256, dtype=np.uint16) | np.arange(255, -1, -1, dtype=np.uint16) << np.uint16(8)
    to_pairs = [n for n in opcodes if n.endswith(f"f16x2.{type}")]
    wanted = {
        n: [from_byte(type, x >> 8, "relu" in n) << 16 | from_byte(type, x & 255, "relu" in n) for x in every.tolist()]
        for n in to_pairs
    }
    check(run([Op(n, 32) for n in to_pairs], [every]), wanted, [every])


def test_cvt_pack():
    a, b, c = (edges(32, 30, seed) for seed in range(3))
    values = [(signed(x, 32), signed(y, 32), z) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    for type, bits in (("s8", 8), ("u8", 8), ("s16", 16), ("u16", 16)):
        name = f"cvt.pack.sat.{type}.s32" + (".b32" if bits == 8 else "")
        top, given = 1 << bits, [a, b, c] if bits == 8 else [a, b]
        wanted = [
            clamped(x, type) % top << bits | clamped(y, type) % top | (z << 16 if bits == 8 else 0)
            for x, y, z in values
        ]
        check(run([Op(name, 32)], given), {name: [w % 2**32 for w in wanted]}, given)
