"""Reference values of roundings. 16-bit floats come from numpy (half) and torch (bfloat16). Exact
values that are rounded once come from fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

EVERY = np.arange(1 << 16, dtype=np.uint16)
# (digits of precision, exponent of the smallest subnormal, largest finite) of each format
FORMATS = {
    "half": (11, -24, Fraction(65504)),
    "bfloat16": (8, -133, Fraction(2) ** 128 - Fraction(2) ** 120),
    "float": (24, -149, Fraction(2) ** 128 - Fraction(2) ** 104),
}


def values_of(kind: str, bits: np.ndarray) -> np.ndarray:
    """Return float32 values, by numpy or torch."""
    if kind == "half":
        return bits.view(np.float16).astype(np.float32)
    return torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16).float().numpy()


def narrowed(kind: str, values: np.ndarray) -> np.ndarray:
    """Return the bits of float32 values rounded to nearest even, by numpy or torch."""
    if kind == "half":
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return values.astype(np.float16).view(np.uint16)
    return torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)


def rounded(value: Fraction, kind: str, direction: str = "rn") -> float:
    """Return the exact value rounded once, as a double. A double holds every value of the three
    formats.
    """
    digits, least, largest = FORMATS[kind]
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - digits + 1, least)
    steps = {"rn": round, "rz": math.trunc, "ru": math.ceil, "rd": math.floor}[direction](value / unit)
    result = steps * unit
    if abs(result) > largest:
        outwards = direction == "rn" or (direction == "ru" and value > 0) or (direction == "rd" and value < 0)
        return math.copysign(math.inf if outwards else float(largest), value)
    return float(result)


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Return whether two results are equal bit for bit, where any NaN equals any NaN. 16-bit floats
    are given as float32 values.
    """
    got, want = np.asarray(got), np.asarray(want)
    wrong = ~((got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want))
    if wrong.any():
        at = wrong.argmax()
        pytest.fail(f"{wrong.sum()} of {wrong.size} differ, first [{at}]: is {got[at]!r}, but should be {want[at]!r}")


def awkward_floats(random, kind: str) -> np.ndarray:
    """Return float32 values: all magnitudes, subnormals, ties of the format and values just beside,
    overflow, NaN.
    """
    anything = random.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    near = (random.standard_normal(50_000) * 10.0 ** random.uniform(-9, 5, 50_000)).astype(np.float32)
    base = values_of(kind, EVERY)
    finite = base[np.isfinite(base)]
    after = np.sort(finite)
    halfway = ((after[:-1].astype(np.float64) + after[1:]) / 2).astype(np.float32)
    edges = [0, 65504, 65519.99, 65520, 65536, 3.3895314e38, np.inf, np.nan, 2**-24, 2**-25]
    edges = np.array(edges, np.float32)
    with np.errstate(all="ignore"):
        beside = [np.nextafter(halfway, np.float32(side)) for side in (np.inf, -np.inf)]
    return np.concatenate([anything, near, base, halfway, *beside, edges, -edges])
