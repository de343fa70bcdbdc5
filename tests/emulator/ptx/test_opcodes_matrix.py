"""mma.sync multiplies matrices that lie in registers in the PTX manual's layout; ldmatrix loads
such registers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch

from flash_attest.emulator.ptx.module import load
from tests.emulator.ptx.opcodes import LETTERS, Op, names, run, signed
from tests.emulator.ptx.rounding import BF16, E4M3, E5M2, F16, F32, F64, Format, add, multiply

TF32 = Format(32, 24, 127)  # the lowest 13 bits do not count
FORMATS = {"f16": F16, "bf16": BF16, "tf32": TF32, "f32": F32, "f64": F64, "e4m3": E4M3, "e5m2": E5M2}
BITS = {"s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "f64": 64}

# (row, column) of element i of a lane with g = lane // 4 and t = lane % 4, by the bits of an
# element, from the manual's formulas.
A_PLACE = {
    (16, 16, 16): lambda i, g, t: (g + (8 if i in (2, 3, 6, 7) else 0), 2 * t + i % 2 + (8 if i >= 4 else 0)),
    (16, 16, 8): lambda i, g, t: (g if i < 2 else g + 8, 2 * t + i % 2),
    (32, 16, 4): lambda i, g, t: (g + 8 * i, t),
    (32, 16, 8): lambda i, g, t: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    (8, 8, 16): lambda i, g, t: (g, 4 * t + i),
    (8, 16, 16): lambda i, g, t: (g if i < 4 else g + 8, 4 * t + i % 4),
    (8, 16, 32): lambda i, g, t: (g if i < 4 or 8 <= i < 12 else g + 8, 4 * t + i % 4 + (16 if i >= 8 else 0)),
    (64, 8, 4): lambda i, g, t: (g, t),
    (64, 16, 4): lambda i, g, t: (g + 8 * i, t),
    (64, 16, 8): lambda i, g, t: (g if i % 2 == 0 else g + 8, t if i < 2 else t + 4),
    (64, 16, 16): lambda i, g, t: (g if i % 2 == 0 else g + 8, i // 2 * 4 + t),
}
B_PLACE = {
    (16, 16): lambda i, g, t: (2 * t + i % 2 + (8 if i >= 2 else 0), g),
    (16, 8): lambda i, g, t: (2 * t + i, g),
    (32, 4): lambda i, g, t: (t, g),
    (32, 8): lambda i, g, t: (t + 4 * i, g),
    (8, 16): lambda i, g, t: (4 * t + i, g),
    (8, 32): lambda i, g, t: (4 * t + i % 4 + (16 if i >= 4 else 0), g),
    (64, 4): lambda i, g, t: (t, g),
    (64, 8): lambda i, g, t: (t + 4 * i, g),
    (64, 16): lambda i, g, t: (4 * i + t, g),
}
C_PLACE = {8: lambda i, g, t: (g, 2 * t + i), 16: lambda i, g, t: (g if i < 2 else g + 8, 2 * t + i % 2)}


@dataclass(frozen=True)
class Mma:
    name: str

    @property
    def words(self) -> list[str]:
        return self.name.split(".")

    @property
    def types(self) -> list[str]:  # of D, A, B, C
        return self.words[-4:]

    @property
    def shape(self) -> tuple[int, int, int]:
        m, rest = self.words[1][1:].split("n")
        n, k = rest.split("k")
        return int(m), int(n), int(k)

    def registers(self, matrix: str, values: np.ndarray) -> list[np.ndarray]:
        """Return the bits of a matrix's elements as the registers of the 32 lanes."""
        m, _, k = self.shape
        bits = BITS[self.types["DABC".index(matrix)]]
        place = {"A": A_PLACE.get((bits, m, k)), "B": B_PLACE.get((bits, k)), "C": C_PLACE[m]}[matrix]
        elements, size = values.size // 32, max(bits, 32)
        arrays = [np.zeros(32, np.uint64 if size == 64 else np.uint32) for _ in range(elements * bits // size)]
        for lane in range(32):
            for i in range(elements):
                value = int(values[place(i, lane // 4, lane % 4)]) % (1 << bits)
                arrays[i * bits // size][lane] |= arrays[0].dtype.type(value << i * bits % size)
        return arrays

    def matrix(self, registers: list[list[int]]) -> np.ndarray:
        """Return D, as bits, given its registers."""
        m, n, _ = self.shape
        bits = BITS[self.types[0]]
        per = max(32 // bits, 1)
        result = np.zeros((m, n), np.uint64)
        for lane in range(32):
            for i in range(m * n // 32):
                result[C_PLACE[m](i, lane // 4, lane % 4)] = (
                    registers[i // per][lane] >> i % per * bits & (1 << bits) - 1
                )
        return result

    def __call__(self, *cases: tuple[np.ndarray, np.ndarray, np.ndarray]) -> list[np.ndarray]:
        """Return D, as bits, given the bits of A, B and C. Each case uses one warp."""
        held = [[self.registers(name, values) for name, values in zip("ABC", case, strict=True)] for case in cases]
        parts = [[np.concatenate(lanes) for lanes in zip(*matrix, strict=True)] for matrix in zip(*held, strict=True)]
        letters = iter(LETTERS)
        listed = ["{" + ", ".join(f"%{next(letters)}" for _ in part) + "}" for part in parts]
        results, size = len(parts[2]), max(BITS[self.types[0]], 32)
        opcode = self.name.replace("mma.", "mma.sync.aligned.").replace(self.words[1], self.words[1] + ".row.col")
        to = "{" + ", ".join(f"%result{i}" for i in range(results)) + "}"
        text = f"{{ .reg .b{size} %result<{results}>; {opcode} {to}, {', '.join(listed)}; mov.b{size} %d, %result"
        ops = [Op(str(i), size, f"{text}{i}; }}") for i in range(results)]
        got = list(run(ops, [register for part in parts for register in part]).values())
        return [self.matrix([register[first : first + 32] for register in got]) for first in range(0, len(got[0]), 32)]


def listed() -> list[Mma]:
    types = [(["m16n8k16", "m16n8k8"], f"{d}.f16.f16.{d}") for d in ("f32", "f16")]
    types += [(["m16n8k16", "m16n8k8"], "f32.bf16.bf16.f32"), (["m16n8k8", "m16n8k4"], "f32.tf32.tf32.f32")]
    types += [(["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"], "f64.f64.f64.f64")]
    for a, b in itertools.product(("s8", "u8"), repeat=2):
        shapes = ["m16n8k32", "m16n8k16", "m8n8k16"]
        types.append((shapes + [f"{shape}.satfinite" for shape in shapes], f"s32.{a}.{b}.s32"))
    for d, a, b in itertools.product(("f32", "f16"), ("e4m3", "e5m2"), ("e4m3", "e5m2")):
        types.append((["m16n8k32", "m16n8k16"], f"{d}.{a}.{b}.{d}"))
    return [Mma(f"mma.{shape}.{type}") for shapes, type in types for shape in shapes]


MMA = listed()


def test_the_products_are_all():
    assert sorted(mma.name for mma in MMA) == names("mma")


def encoded(type: str, values: np.ndarray) -> np.ndarray:
    """Return whole numbers as bits."""
    if type not in FORMATS:
        return values.astype(np.int64) % (1 << BITS[type])
    return np.vectorize(lambda v: FORMATS[type].encode(Fraction(int(v)) if v else 0.0), otypes=[np.uint64])(values)


@pytest.mark.parametrize("mma", MMA, ids=lambda mma: mma.name)
def test_products(mma):
    """Small whole numbers have exact sums, so an element in a wrong position changes the
    product.
    """
    m, n, k = mma.shape
    rng = np.random.default_rng(0)
    low = 0 if "u8" in mma.types else -3
    a, b, c = (rng.integers(low, 4, shape) for shape in ((m, k), (k, n), (m, n)))
    [got] = mma([encoded(type, values) for type, values in zip(mma.types[1:], (a, b, c), strict=True)])
    np.testing.assert_array_equal(got, encoded(mma.types[0], a @ b + c).astype(np.uint64))


ONE_HOT = [mma for mma in MMA if len({*mma.types[1:3]}) == 1 and "satfinite" not in mma.name]


@pytest.mark.parametrize("mma", ONE_HOT, ids=lambda mma: mma.name)
def test_each_element_of_a_product_lies_where_the_manual_says(mma):
    """A has a single one in (row, k), and B has a single one in (k, column). So for every k, D has
    a single one in (row, column).
    """
    m, n, size = mma.shape
    ones = [((5 * k + 3) % m, k, (3 * k + 1) % n) for k in range(size)]
    cases = []
    for row, k, column in ones:
        a, b, c = np.zeros((m, size)), np.zeros((size, n)), np.zeros((m, n))
        a[row, k] = b[k, column] = 1
        cases.append([encoded(type, values) for type, values in zip(mma.types[1:], (a, b, c), strict=True)])
    for (row, k, column), got in zip(ones, mma(*cases), strict=True):
        places = [tuple(map(int, place)) for place in np.argwhere(got)]
        assert places == [(row, column)], f"A one in {row, k}, B in {k, column}: D has {places}"


@pytest.mark.parametrize("type", ["f16", "bf16", "tf32"])
def test_sums_are_in_float32_in_order_of_k(type):
    """Sums begin with C. Each product and each sum is rounded once, so the result is near the
    float64 product.
    """
    mma = Mma(f"mma.m16n8k{8 if type == 'tf32' else 16}.f32.{type}.{type}.f32")
    m, n, size = mma.shape
    rng, format = np.random.default_rng(1), FORMATS[type]
    values = [rng.normal(size=shape) for shape in ((m, size), (size, n), (m, n))]
    mask = 0xFFFFE000 if type == "tf32" else 0xFFFF
    a, b = (np.vectorize(lambda v: format.encode(Fraction(v)) & mask, otypes=[np.uint64])(v) for v in values[:2])
    c = np.vectorize(lambda v: F32.encode(Fraction(v)), otypes=[np.uint64])(values[2])
    noise = rng.integers(0, 1 << 13, a.shape, dtype=np.uint64) if type == "tf32" else np.uint64(0)
    [got] = mma((a | noise, b, c))
    wanted = np.zeros((m, n), np.uint64)
    for row in range(m):
        for column in range(n):
            total = int(c[row, column])
            for k in range(size):
                product = multiply(format.value(int(a[row, k])), format.value(int(b[k, column])))
                total = F32.encode(add(product, F32.value(total)))
            wanted[row, column] = total
    np.testing.assert_array_equal(got, wanted)
    x, y, z = (
        np.vectorize(lambda v, f=f: float(f.value(int(v))))(bits) for bits, f in ((a, format), (b, format), (c, F32))
    )
    result = got.astype(np.uint32).view(np.float32)
    assert np.abs(result - (x @ y + z)).max() < 2e-6


def test_integers_wrap_or_are_clamped():
    a, b, c = np.full((16, 32), 127), np.full((32, 8), 127), np.full((16, 8), 2**31 - 10)
    for satfinite, wanted in (("", signed((2**31 - 10 + 32 * 127 * 127) % 2**32, 32)), (".satfinite", 2**31 - 1)):
        [got] = Mma(f"mma.m16n8k32{satfinite}.s32.s8.s8.s32")((a, b, c))
        assert {signed(int(v), 32) for v in got.ravel()} == {wanted}


def test_infinities_and_nan():
    mma = Mma("mma.m16n8k16.f32.f16.f16.f32")
    a, b, c = (
        np.zeros((16, 16), np.uint64),
        np.full((16, 8), F16.encode(add(1.0, 0.0)), np.uint64),
        np.zeros((16, 8), np.uint64),
    )
    a[0, 3], a[1, 3], a[1, 4], a[2, 15] = 0x7C00, 0x7C00, 0xFC00, 0x7E01
    [got] = mma((a, b, c))
    assert set(got[0]) == {0x7F800000} and set(got[1]) == set(got[2]) == {0x7FFFFFFF} and not got[3:].any()


LDMATRIX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry test(.param .u64 data, .param .u64 rows, .param .u64 to)
{{
.reg .b32 %r<4>; .reg .b32 %v<4>; .reg .b32 %d<4>; .reg .b64 %x<4>;
.shared .align 16 .b8 memory[512];
ld.param.u64 %x0, [data]; ld.param.u64 %x1, [rows]; ld.param.u64 %x2, [to];
mov.u32 %r0, %tid.x;
mul.wide.u32 %x3, %r0, 16; add.s64 %x0, %x0, %x3; add.s64 %x2, %x2, %x3;
mul.wide.u32 %x3, %r0, 4; add.s64 %x1, %x1, %x3;
ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%x0];
mov.u32 %r1, memory;
shl.b32 %r2, %r0, 4; add.s32 %r2, %r1, %r2;
st.shared.v4.b32 [%r2], {{%v0, %v1, %v2, %v3}};
bar.sync 0;
ld.global.b32 %r3, [%x1]; add.s32 %d0, %r1, %r3;
mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;
ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{to}}}, [%d0];
st.global.v4.b32 [%x2], {{%d0, %d1, %d2, %d3}};
ret;
}}
"""


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count, trans):
    """Lane 8i + r gives the address of row r of matrix i. A lane gets two elements of row lane / 4,
    or of that column. The first result overwrites the register of the addresses.
    """
    text = LDMATRIX.format(count=count, trans=trans, to=", ".join(f"%d{i}" for i in range(count)))
    data = torch.arange(256, dtype=torch.int16).reshape(32, 8)
    rows = torch.randperm(32, generator=torch.Generator().manual_seed(0)).to(torch.int32)
    to = torch.full((32, 4), -1, dtype=torch.int32)
    load(text)["test"].launch(1, 32)(data, rows * 16, to)
    matrices = data[rows.long()].reshape(4, 8, 8)[:count]
    if trans:
        matrices = matrices.transpose(1, 2)
    got = to[:, :count].contiguous().view(torch.int16).reshape(8, 4, count, 2).permute(2, 0, 1, 3).reshape(count, 8, 8)
    assert torch.equal(got, matrices)


@pytest.mark.parametrize("suffix, count", [(f"{x}{t}", int(x[1])) for x in ("x1", "x2", "x4") for t in ("", ".trans")])
def test_stmatrix_is_the_inverse_of_ldmatrix(suffix, count):
    text = (
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry test(.param .u64 from, .param .u64 to)\n{\n"
        ".shared .align 16 .b8 tile[1024]; .reg .b32 %r<9>; .reg .b64 %w<4>; .reg .b32 %m<4>;\n"
        "ld.param.u64 %w0, [from]; ld.param.u64 %w1, [to]; mov.u32 %r0, %tid.x; mul.wide.u32 %w2, %r0, 16;\n"
        "add.s64 %w0, %w0, %w2; add.s64 %w1, %w1, %w2; shl.b32 %r1, %r0, 4; mov.u32 %r2, tile; add.s32 %r1, %r1, %r2;\n"
        "ld.global.v4.b32 {%r3, %r4, %r5, %r6}, [%w0]; st.shared.v4.b32 [%r1], {%r3, %r4, %r5, %r6}; bar.warp.sync -1;\n"
    )
    held = "{" + ", ".join(f"%m{i}" for i in range(count)) + "}"
    text += (
        f"ldmatrix.sync.aligned.m8n8.{suffix}.shared.b16 {held}, [%r1]; bar.warp.sync -1;\n"
        f"stmatrix.sync.aligned.m8n8.{suffix}.shared.b16 [%r1+512], {held}; bar.warp.sync -1;\n"
        "ld.shared.v4.b32 {%r3, %r4, %r5, %r6}, [%r1+512]; st.global.v4.b32 [%w1], {%r3, %r4, %r5, %r6}; ret;\n}\n"
    )
    source = torch.arange(256, dtype=torch.int16)
    result = torch.zeros(256, dtype=torch.int16)
    load(text)["test"].launch(1, 32)(source, result)
    assert result[: 64 * count].tolist() == source[: 64 * count].tolist()
    assert not (result[64 * count :] == source[64 * count :]).any()  # no lane beyond the last row stores
