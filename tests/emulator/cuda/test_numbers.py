"""The shim computes the same results as a GPU: 16-bit floats, rounding, intrinsics on bits, sizes.

Expected values come from numpy (half), torch (bfloat16), and fractions for operations that both
would round twice. Everything is compiled by one call of g++, without the runtime.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.rounded_once import EVERY, awkward_floats, narrowed, rounded, same, values_of
from tests.places import ROOT

INCLUDE = ROOT / "emulator" / "cuda" / "include"
NUMBERS = Path(__file__).parent / "sources" / "numbers.cpp"
GXX = shutil.which("g++")


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "numbers.so"
    # -ffp-contract=off: a processor that fuses x * y + z would round some of these once instead of
    # twice.
    command = [GXX, "-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-isystem", INCLUDE]
    subprocess.run([*command, NUMBERS, "-o", library], check=True)
    return Library(ctypes.CDLL(str(library)))


class Library:
    """The functions of numbers.cpp. shim("half_add", np.uint16, x, y) takes arrays of one dtype and
    returns a result of another.
    """

    def __init__(self, library: ctypes.CDLL):
        self.library = library

    def __call__(self, name: str, out: type, *arrays) -> np.ndarray:
        arrays = [np.ascontiguousarray(array) for array in arrays]
        assert len({array.dtype for array in arrays}) == 1
        result = np.empty(arrays[0].shape, out)
        inputs = [*arrays, *[arrays[0]] * (3 - len(arrays))]
        getattr(self.library, name)(
            *(ctypes.c_void_p(a.ctypes.data) for a in (result, *inputs)), ctypes.c_long(result.size)
        )
        return result


@pytest.fixture
def random():
    return np.random.default_rng(0)


# ---- 16-bit floats -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_every_pattern_there_and_back(shim, kind):
    wide = shim(f"{kind}_wide", np.float32, EVERY)
    same(wide, values_of(kind, EVERY))
    back = shim(f"{kind}_rn", np.uint16, wide)
    numbers = ~np.isnan(wide)
    assert np.array_equal(back[numbers], EVERY[numbers])
    assert (back[~numbers] == 0x7FFF).all()


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_floats_are_rounded_to_nearest_even(shim, random, kind):
    x = awkward_floats(random, kind)
    same(values_of(kind, shim(f"{kind}_rn", np.uint16, x)), values_of(kind, narrowed(kind, x)))


@pytest.mark.parametrize("direction", ["rz", "ru", "rd"])
@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_floats_are_rounded_in_a_direction(shim, random, kind, direction):
    x = random.choice(awkward_floats(random, kind), 4000)
    x = np.concatenate([x[np.isfinite(x)], np.array([65519, 1e6, -1e6, 3.4e38, -3.4e38, 1e-45, -1e-45], np.float32)])
    got = values_of(kind, shim(f"{kind}_{direction}", np.uint16, x))
    assert got.tolist() == [rounded(Fraction(float(value)), kind, direction) for value in x]
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    same(values_of(kind, shim(f"{kind}_{direction}", np.uint16, special)), special)


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_doubles_and_large_integers_are_rounded_once(shim, random, kind):
    """If it were rounded twice, through float, a double just above a tie would first become the tie
    and then be rounded down.
    """
    x = random.choice(awkward_floats(random, kind), 3000)
    x = x[np.isfinite(x)].astype(np.float64)
    x = np.concatenate([x, x * (1 + 2.0**-45), x * (1 - 2.0**-45), x * 1e-40, [1e300, -1e300, 5e-324]])
    got = values_of(kind, shim(f"{kind}_double", np.uint16, x))
    assert got.tolist() == [rounded(Fraction(float(value)), kind) for value in x]
    special = np.array([np.inf, -np.inf, np.nan, -0.0])
    same(values_of(kind, shim(f"{kind}_double", np.uint16, special)), special.astype(np.float32))

    tie = 0x4040_0000_0000_0000  # nine digits, the last one a tie
    y = random.integers(-(2**63), 2**63 - 1, 1000)
    y = np.concatenate([y, [tie, tie + 1, tie - 1, -tie - 1, 2049, 2051, 65519, 65520, 0]])
    got = values_of(kind, shim(f"{kind}_ll", np.uint16, y))
    assert got.tolist() == [rounded(Fraction(int(value)), kind) for value in y]
    z = np.array([tie, tie + 1, (1 << 64) - 1, (0xFF80 << 48) + 1, 0], np.uint64)
    got = values_of("bfloat16", shim("bfloat16_ull", np.uint16, z))
    assert got.tolist() == [rounded(Fraction(int(value)), "bfloat16") for value in z]
    w = np.array([257, 258, 259, -257, -259, 2**31 - 1, -(2**31)], np.int32)
    got = values_of("bfloat16", shim("bfloat16_int_rz", np.uint16, w))
    assert got.tolist() == [rounded(Fraction(int(value)), "bfloat16", "rz") for value in w]


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_arithmetic_is_rounded_once(shim, random, kind):
    x, y, z = random.integers(0, 1 << 16, (3, 6000), dtype=np.uint16)
    # These are rare in random patterns: sums of similar size, subnormals, and (fma) a tie that a
    # tiny z decides.
    x[:1500] = x[:1500] & 0x83FF | 0x3C00
    y[:1500] = y[:1500] & 0x83FF | 0x3C00
    x[1500:2000], y[1500:2000] = x[1500:2000] & 0x83FF, y[1500:2000] & 0xBFFF
    z[:3000] = z[:3000] & 0x803F
    values = [values_of(kind, bits) for bits in (x, y, z)]
    finite = np.isfinite(values).all(0) & (values[1] != 0)
    x, y, z = x[finite], y[finite], z[finite]
    exact = [[Fraction(float(value)) for value in v[finite]] for v in values]
    results = {
        "add": [a + b for a, b, _ in zip(*exact, strict=True)],
        "sub": [a - b for a, b, _ in zip(*exact, strict=True)],
        "mul": [a * b for a, b, _ in zip(*exact, strict=True)],
        "div": [a / b for a, b, _ in zip(*exact, strict=True)],
        "fma": [a * b + c for a, b, c in zip(*exact, strict=True)],
    }
    for name, wanted in results.items():
        got = values_of(kind, shim(f"{kind}_{name}", np.uint16, x, y, z))
        assert got.tolist() == [rounded(value, kind) for value in wanted], name


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_infinities_nans_and_signs(shim, kind):
    one, infinity, nan = {"half": (0x3C00, 0x7C00, 0x7E00), "bfloat16": (0x3F80, 0x7F80, 0x7FC0)}[kind]
    some = np.array(
        [0, 0x8000, one, one | 0x8000, infinity, infinity | 0x8000, nan, nan | 0x8000, 1, 0x8001], np.uint16
    )
    x, y = (a.ravel() for a in np.meshgrid(some, some))
    a, b = values_of(kind, x), values_of(kind, y)
    unordered = np.isnan(a) | np.isnan(b)
    with np.errstate(all="ignore"):
        for name, want in {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "neg": -a, "abs": np.abs(a)}.items():
            want = values_of(kind, narrowed(kind, want.astype(np.float32)))
            same(values_of(kind, shim(f"{kind}_{name}", np.uint16, x, y)), want)
    wanted = {
        "eq": a == b,
        "ne": (a != b) & ~unordered,
        "neu": a != b,
        "lt": a < b,
        "ltu": (a < b) | unordered,
        "ge": a >= b,
    }
    for name, want in {**wanted, "isnan": np.isnan(a)}.items():
        assert np.array_equal(shim(f"{kind}_{name}", np.uint16, x, y), want), name
    ordered = {"max": np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))}
    ordered["min"] = np.where(a == b, np.where(np.signbit(a), a, b), np.fmin(a, b))
    ordered["max_nan"] = np.where(unordered, np.float32(np.nan), ordered["max"])
    for name, want in ordered.items():
        same(values_of(kind, shim(f"{kind}_{name}", np.uint16, x, y)), want)


def test_functions_of_halves(shim):
    wide = EVERY.view(np.float16).astype(np.float32)
    with np.errstate(invalid="ignore"):
        same(
            values_of("half", shim("half_sqrt", np.uint16, EVERY)), np.sqrt(wide).astype(np.float16).astype(np.float32)
        )
        clipped = np.where(np.isnan(wide), 0, np.clip(wide + wide, 0, 1)).astype(np.float16).astype(np.float32)
        whole = np.rint(wide)
    same(values_of("half", shim("half_add_sat", np.uint16, EVERY, EVERY)), np.abs(clipped))
    same(values_of("half", shim("half_rint", np.uint16, EVERY)), whole)
    whole = np.nan_to_num(whole.astype(np.float64), nan=0, posinf=2**31 - 1, neginf=-(2**31))
    assert np.array_equal(shim("half_to_int", np.int32, EVERY), whole.astype(np.int64))
    a, b = np.array([[1, 1], [1, 2], [np.nan, 1]], np.float32).T
    assert shim("half_pairs", np.uint32, a, b).tolist() == [0xFFFFFFFF, 0xFFFF, 0]


# ---- rounding of float and double ----------------------------------------------------------------

TOWARDS = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}


@pytest.mark.parametrize("direction", TOWARDS)
def test_conversions_to_integers_saturate(shim, random, direction):
    x = random.standard_normal(500) * 10.0 ** random.uniform(-2, 25, 500)
    x = np.concatenate([x, [0.5, 1.5, -0.5, np.inf, -np.inf, np.nan]])

    def clipped(values, low, high, nan):
        whole = TOWARDS[direction](values.astype(np.float64))
        return [nan if math.isnan(v) else high if v >= high else low if v <= low else int(v) for v in whole.tolist()]

    single = x.astype(np.float32)
    assert shim(f"f2i_{direction}", np.int32, single).tolist() == clipped(single, -(2**31), 2**31 - 1, 0)
    assert shim(f"f2u_{direction}", np.uint32, single).tolist() == clipped(single, 0, 2**32 - 1, 0)
    assert shim(f"d2ll_{direction}", np.int64, x).tolist() == clipped(x, -(2**63), 2**63 - 1, -(2**63))


@pytest.mark.parametrize("direction", TOWARDS)
def test_conversions_to_float_are_rounded_in_a_direction(shim, random, direction):
    x = random.standard_normal(2000) * 10.0 ** random.uniform(-44, 39, 2000)
    x = np.concatenate([x, [1e300, -1e300, 1e-300, -1e-300]])
    want = [rounded(Fraction(float(value)), "float", direction) for value in x]
    assert shim(f"d2f_{direction}", np.float32, x).tolist() == want
    y = np.concatenate([random.integers(-(2**63), 2**63 - 1, 1000), random.integers(-(2**30), 2**30, 1000)])
    want = [rounded(Fraction(int(value)), "float", direction) for value in y]
    assert shim(f"ll2f_{direction}", np.float32, y).tolist() == want


@pytest.mark.parametrize("direction", ["rz", "ru", "rd"])
def test_sums_and_products_are_rounded_in_a_direction(shim, random, direction):
    x, y = ((random.standard_normal(2000) * 10.0 ** random.uniform(-20, 20, 2000)).astype(np.float32) for _ in range(2))
    pairs = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(x, y, strict=True)]
    assert shim(f"fadd_{direction}", np.float32, x, y).tolist() == [
        rounded(a + b, "float", direction) for a, b in pairs
    ]
    assert shim(f"fmul_{direction}", np.float32, x, y).tolist() == [
        rounded(a * b, "float", direction) for a, b in pairs
    ]


def test_special_values_of_approximations(shim):
    def one(name, *values):
        return shim(name, np.float32, *(np.array([value], np.float32) for value in values)).item()

    assert math.isnan(one("powf_", -2, 2))  # exp2(y * log2(x))
    assert one("powf_", 2, 10) == 1024
    assert one("fdividef_", 6, 3) == 2
    assert one("fdividef_", 1e38, 2.0**127) == 0
    assert math.isnan(one("fdividef_", np.inf, 2.0**127))
    assert [one("saturatef", value) for value in (-1, 0.25, 7, np.nan)] == [0, 0.25, 1, 0]
    assert one("maxf", np.nan, 3) == one("maxf", 3, np.nan) == 3


# ---- bits ----------------------------------------------------------------------------------------


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def test_intrinsics_on_32_bits(shim, random):
    x, y, z = random.integers(0, 1 << 32, (3, 2000), dtype=np.uint32)
    x[:40] = [0, *(1 << i for i in range(32)), 0xFFFFFFFF, *range(1, 7)]
    z[:70] = range(70)  # shifts, also above 32

    def low(value):
        return value & 0xFFFFFFFF

    def bytes_of(a, b):
        return low(a).to_bytes(4, "little") + low(b).to_bytes(4, "little")

    def dot(a, b, c, sign):
        return c + sum(
            int.from_bytes([m], "little", signed=sign) * int.from_bytes([n], "little", signed=sign)
            for m, n in zip(bytes_of(a, 0)[:4], bytes_of(b, 0)[:4], strict=True)
        )

    def digits_24(a):
        return signed(a & 0xFFFFFF, 24)

    unsigned = {
        "popc": lambda a, b, c: a.bit_count(),
        "clz": lambda a, b, c: 32 - a.bit_length(),
        "ffs": lambda a, b, c: (a & -a).bit_length(),
        "brev": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
        "perm": lambda a, b, c: int.from_bytes(bytes(bytes_of(a, b)[c >> 4 * i & 7] for i in range(4)), "little"),
        "shift_l": lambda a, b, c: low((b << 32 | a) << (c & 31) >> 32),
        "shift_r": lambda a, b, c: low((b << 32 | a) >> (c & 31)),
        "shift_lc": lambda a, b, c: low((b << 32 | a) << min(c, 32) >> 32),
        "shift_rc": lambda a, b, c: low((b << 32 | a) >> min(c, 32)),
        "umulhi": lambda a, b, c: a * b >> 32,
        "umul24": lambda a, b, c: low((a & 0xFFFFFF) * (b & 0xFFFFFF)),
        "usad": lambda a, b, c: low(abs(a - b) + c),
        "udp4a": lambda a, b, c: low(dot(a, b, c, False)),
    }
    for name, reference in unsigned.items():
        want = [reference(*row) for row in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)]
        assert shim(name, np.uint32, x, y, z).tolist() == want, name
    with_sign = {
        "mulhi": lambda a, b, c: a * b >> 32,
        "mul24": lambda a, b, c: signed(digits_24(a) * digits_24(b)),
        "hadd": lambda a, b, c: a + b >> 1,
        "dp4a": lambda a, b, c: signed(dot(a, b, c, True)),
        "sad": lambda a, b, c: signed(abs(a - b) + c),
        "min_mixed": lambda a, b, c: min(low(a), 7),
    }
    arrays = [array.view(np.int32) for array in (x, y, z)]
    for name, reference in with_sign.items():
        want = [reference(*row) for row in zip(*(array.tolist() for array in arrays), strict=True)]
        assert shim(name, np.int32, *arrays).tolist() == want, name


def test_intrinsics_on_64_bits(shim, random):
    x, y = random.integers(0, 1 << 64, (2, 1000), dtype=np.uint64)
    x[:65] = [0, *(1 << i for i in range(64))]
    rows = list(zip(x.tolist(), y.tolist(), strict=True))
    assert shim("popcll", np.int32, x).tolist() == [a.bit_count() for a, _ in rows]
    assert shim("clzll", np.int32, x).tolist() == [64 - a.bit_length() for a, _ in rows]
    assert shim("ffsll", np.int32, x).tolist() == [(a & -a).bit_length() for a, _ in rows]
    assert shim("brevll", np.uint64, x).tolist() == [int(f"{a:064b}"[::-1], 2) for a, _ in rows]
    assert shim("umul64hi", np.uint64, x, y).tolist() == [a * b >> 64 for a, b in rows]
    assert np.array_equal(shim("d_parts", np.float64, x.view(np.float64)).view(np.uint64), x)
