"""Instructions on integers and bits compute what PTX defines, for all types, with Python's integers
as the reference.

Every handler of the machine whose first word is in REFERENCE runs under each of its names.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.ptx.opcodes import Op, check, crossed, edges, names, run, signed


def quotient(a: int, b: int) -> int:
    """Divide, rounding towards zero. A division by zero gives all ones, as on GPUs."""
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def clamped(value: int, bits: int, sign: bool = True) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def low24(value: int, sign: bool) -> int:
    value &= 0xFFFFFF
    return signed(value, 24) if sign else value


# name -> f(words of the name, bits, whether the type is signed, *values). Values are signed
# accordingly.
REFERENCE = {
    "add": lambda w, n, s, a, b: clamped(a + b, n) if "sat" in w else a + b,
    "sub": lambda w, n, s, a, b: clamped(a - b, n) if "sat" in w else a - b,
    "neg": lambda w, n, s, a: -a,
    "abs": lambda w, n, s, a: abs(a),
    "min": lambda w, n, s, a, b: max(min(a, b), 0) if "relu" in w else min(a, b),
    "max": lambda w, n, s, a, b: max(a, b, 0) if "relu" in w else max(a, b),
    "div": lambda w, n, s, a, b: quotient(a, b),
    "rem": lambda w, n, s, a, b: a if b == 0 else a - quotient(a, b) * b,
    "sad": lambda w, n, s, a, b, c: c + abs(a - b),
    "mul": lambda w, n, s, a, b: a * b >> n if "hi" in w else a * b,
    "mad": lambda w, n, s, a, b, c: (
        clamped((a * b >> n) + c, n) if "sat" in w else (a * b >> n if "hi" in w else a * b) + c
    ),
    "mul24": lambda w, n, s, a, b: low24(a, s) * low24(b, s) >> (16 if "hi" in w else 0),
    "mad24": lambda w, n, s, a, b, c: (low24(a, s) * low24(b, s) >> (16 if "hi" in w else 0)) + c,
    "and": lambda w, n, s, a, b: a & b,
    "or": lambda w, n, s, a, b: a | b,
    "xor": lambda w, n, s, a, b: a ^ b,
    "not": lambda w, n, s, a: ~a,
    "cnot": lambda w, n, s, a: int(a == 0),
    "popc": lambda w, n, s, a: a.bit_count(),
    "clz": lambda w, n, s, a: n - a.bit_length(),
    "brev": lambda w, n, s, a: int(f"{a:0{n}b}"[::-1], 2),
    "shl": lambda w, n, s, a, by: a << min(by, 64),
    "shr": lambda w, n, s, a, by: a >> by,
}


def bfind(w, n, s, a):
    place = (~a if a < 0 else a).bit_length() - 1
    return -1 if place < 0 else n - 1 - place if "shiftamt" in w else place


def bfe(w, n, s, a, at, length):
    """Extract bit by bit, as in the manual's pseudocode."""
    at, length, a = at & 255, length & 255, a % (1 << n)
    fill = a >> min(at + length - 1, n - 1) & 1 if s and length else 0
    return sum((a >> (at + i) & 1 if i < length and at + i < n else fill) << i for i in range(n))


def bfi(w, n, s, a, b, at, length):
    at, length = at & 255, length & 255
    for i in range(length):
        if at + i < n:
            b = b & ~(1 << at + i) | (a >> i & 1) << at + i
    return b


def shf(w, n, s, a, b, by):
    by = by % 32 if "wrap" in w else min(by, 32)
    both = b << 32 | a
    return both << by >> 32 if "l" in w else both >> by


def bmsk(w, n, s, a, b):
    """Return b ones, starting at bit a."""
    if "wrap" in w:
        a, b = a % 32, b % 32
    return sum(1 << i for i in range(a, min(a + min(b, 32), 32)))


def szext(w, n, s, a, length):
    if "clamp" in w and length >= 32:
        return a
    length %= 32
    a &= (1 << length) - 1
    return signed(a, length) if s and length else a


def prmt(w, n, s, a, b, c):
    source = [(b << 32 | a) >> 8 * i & 255 for i in range(8)]
    k, i4 = c & 3, range(4)
    modes = {
        "f4e": [(k + i) % 8 for i in i4], "b4e": [(k - i) % 8 for i in i4], "rc8": [k] * 4,
        "ecl": [max(k, i) for i in i4], "ecr": [min(k, i) for i in i4], "rc16": [2 * (k & 1) + (i & 1) for i in i4],
    }  # fmt: skip
    if w[-1] in modes:
        return sum(source[at] << 8 * i for i, at in enumerate(modes[w[-1]]))
    picked = [(source[c >> 4 * i & 7], c >> 4 * i & 8) for i in i4]
    return sum((255 * (byte >> 7) if sign else byte) << 8 * i for i, (byte, sign) in enumerate(picked))


def dot(w, n, s, a, b, c):
    """Return c + the dot product of bytes. For dp2a, it is the product of 16-bit numbers with the
    lower or upper bytes.
    """
    size, count = (8, 4) if w[0] == "dp4a" else (16, 2)
    first = 2 if "hi" in w else 0
    a_sign, b_sign = (word == "s32" for word in w[-2:])
    for i in range(count):
        x, y = a >> size * i & (1 << size) - 1, b >> 8 * (first + i) & 255
        c += (signed(x, size) if a_sign else x) * (signed(y, 8) if b_sign else y)
    return c


REFERENCE |= {"bfind": bfind, "bfe": bfe, "bfi": bfi, "shf": shf, "bmsk": bmsk, "szext": szext, "prmt": prmt}
REFERENCE |= {"dp4a": dot, "dp2a": dot}
COUNTS = {"popc", "clz", "bfind"}  # a result of 32 bits
# Sources that are .u32 for every type.
AMOUNTS = {"shl": (1,), "shr": (1,), "bfe": (1, 2), "bfi": (2, 3)}
# The words of these instructions give the sign in different ways.
UNSIGNED_SOURCES = {"dp4a", "dp2a", "szext", "prmt"}


def sources_of(word: str) -> int:
    return REFERENCE[word].__code__.co_argcount - 3


def integer_names() -> dict[tuple, list[str]]:
    """Return names by (number of sources, widths of sources). One kernel can run all names of an
    entry.
    """
    groups = {}
    for name in names(*REFERENCE):
        words = name.split(".")
        kind = next((word for word in reversed(words) if word[0] in "sub" and word[1:] in ("16", "32", "64")), "")
        if not kind or "cc" in words:
            continue
        bits, word = int(kind[1:]), words[0]
        widths = [32 if i in AMOUNTS.get(word, ()) else bits for i in range(sources_of(word))]
        if words[:2] == ["mad", "wide"]:
            widths[2] = 2 * bits
        groups.setdefault(tuple(widths), []).append(name)
    return groups


def expected(name: str, bits: int, sources) -> tuple[int, list[int]]:
    """Return (bits of the result, the results)."""
    words = name.split(".")
    word = words[0]
    sign = words[-1][0] == "s"
    to = 32 if word in COUNTS else 2 * bits if "wide" in words else bits
    results = []
    for values in zip(*(source.tolist() for source in sources), strict=True):
        with_sign = sign and word not in UNSIGNED_SOURCES
        plain = set(AMOUNTS.get(word, ()))
        given = [
            signed(v, 8 * source.itemsize) if with_sign and i not in plain else v
            for i, (v, source) in enumerate(zip(values, sources, strict=True))
        ]
        results.append(REFERENCE[word](words, bits, sign, *given) % (1 << to))
    return to, results


WIDTHS = [(16,), (32,), (64,), (16, 16), (32, 32), (64, 64), (16, 32), (64, 32), (16,) * 3, (32,) * 3, (64,) * 3,
          (16, 16, 32), (32, 32, 64), (64, 32, 32), (32,) * 4, (64, 64, 32, 32)]  # fmt: skip


def test_the_widths_are_all():
    assert sorted(integer_names()) == sorted(WIDTHS)


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_integers(widths):
    group = integer_names()[widths]
    few = {1: 60, 2: 16, 3: 0, 4: 0}[len(widths)]
    sources = crossed(*(edges(bits, few, seed) for seed, bits in enumerate(widths)), most=400)
    wanted = {
        name: expected(name, 32 if name.split(".")[0] in AMOUNTS and widths[0] == 32 else widths[0], sources)
        for name in group
    }
    got = run([Op(name, wanted[name][0]) for name in group], sources)
    check(got, {name: results for name, (_, results) in wanted.items()}, sources)


# ---- other shapes --------------------------------------------------------------------------------


def test_pairs_of_16_bits():
    """Each half is computed separately, so no carry goes into the upper half."""
    ops = [name for name in names("add", "min", "max") if name.endswith("16x2") and "f" not in name]
    assert len(ops) == 8
    sources = crossed(edges(32, 20), edges(32, 20, 1))

    def both(name, a, b):
        words, sign = name.split("."), "s16x2" in name
        halves = [[x >> shift & 0xFFFF for x in (a, b)] for shift in (0, 16)]
        halves = [[signed(x, 16) if sign else x for x in half] for half in halves]
        low, high = (REFERENCE[words[0]](words, 16, sign, *half) % (1 << 16) for half in halves)
        return high << 16 | low

    values = list(zip(*(source.tolist() for source in sources), strict=True))
    check(run([Op(name, 32) for name in ops], sources), {n: [both(n, *v) for v in values] for n in ops}, sources)


def test_lop3_reads_its_table():
    """lop3 reads bit 4a + 2b + c of the table for each bit; 0xF0 is a, 0xCC b, 0xAA c."""
    tables = [0xF0, 0xCC, 0xAA, 0x80, 0xFE, 0x96, 0xE8, 0x1A, 0, 255]
    ops = [Op(f"lop3 {t}", 32, f"lop3.b32 %d, %a, %b, %c, {t};") for t in tables]
    sources = crossed(edges(32, 0), edges(32, 0, 1), edges(32, 0, 2), most=200)

    def looked_up(table, a, b, c):
        return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))

    values = list(zip(*(source.tolist() for source in sources), strict=True))
    wanted = {op.name: [looked_up(t, *v) for v in values] for op, t in zip(ops, tables, strict=True)}
    assert wanted["lop3 240"] == [a for a, _, _ in values]
    check(run(ops, sources), wanted, sources)


def test_fns_finds_the_nth_bit_that_is_set():
    masks, bases, offsets = ([0b1011_0110, 0, 0xFFFFFFFF, 0x80000001], [0, 1, 3, 4, 31], [0, 1, 2, 5, -1, -2, 32, -32])

    def nth(mask, base, offset):
        places = [i for i in (range(base, 32) if offset >= 0 else range(base, -1, -1)) if mask >> i & 1]
        if offset == 0:
            return base if mask >> base & 1 else 0xFFFFFFFF
        return places[abs(offset) - 1] if len(places) >= abs(offset) else 0xFFFFFFFF

    sources = crossed(*(np.array(v, np.int64).astype(np.uint32) for v in (masks, bases, offsets)))
    values = zip(*(source.tolist() for source in sources), strict=True)
    wanted = {"fns.b32": [nth(m, b, signed(o, 32)) for m, b, o in values]}
    check(run([Op("fns.b32", 32)], sources), wanted, sources)


@pytest.mark.parametrize("bits", [32, 64])
def test_chains_of_carries(bits):
    """Numbers of two words, 128 or 64 bits in all, are added, subtracted, multiplied and added."""
    top = 1 << bits
    texts = {
        "add": "add.cc.u{n} %d, %a, %b; addc.cc.u{n} %e, %c, %x;",
        "sub": "sub.cc.u{n} %d, %a, %b; subc.u{n} %e, %c, %x;",
        "mad": "mad.lo.cc.u{n} %d, %a, %b, %c; madc.hi.u{n} %e, %a, %b, %x;",
        "mad signed": "mad.lo.cc.s{n} %d, %a, %b, %c; madc.hi.s{n} %e, %a, %b, %x;",
    }
    ops = [Op(n, bits, text.replace("{n}", str(bits)), also=bits) for n, text in texts.items()]
    sources = crossed(*(edges(bits, 0, seed) for seed in range(4)), most=300)
    wanted = {name: [] for name in texts}
    for a, b, c, x in zip(*(source.tolist() for source in sources), strict=True):
        whole = x << bits | c
        for name, value in {
            "add": (c << bits | a) + (x << bits | b),
            "sub": (c << bits | a) - (x << bits | b),
            "mad": a * b + whole,
            "mad signed": signed(a, bits) * signed(b, bits) + whole,
        }.items():
            wanted[name].append((value % top, (value >> bits) % top))
    check(run(ops, sources), wanted, sources)
