"""Floating-point formats in exact arithmetic: the reference for the tests of opcodes.

A value is a Fraction, or a float that is infinite, NaN or a zero with its sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

NEAREST, ZERO, DOWN, UP, AWAY = "rn", "rz", "rm", "rp", "rna"


@dataclass(frozen=True)
class Format:
    bits: int
    digits: int  # of a normal number, the leading one included
    bias: int

    @property
    def fraction(self) -> int:
        return self.digits - 1

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1

    @property
    def infinity(self) -> int:
        return (2 * self.bias + 1) << self.fraction

    @property
    def nan(self) -> int:
        """Return the NaN that an operation gives on a GPU; for float64 any NaN is accepted."""
        return self.sign - 1

    @property
    def least_normal(self) -> Fraction:
        return Fraction(2) ** (1 - self.bias)

    def value(self, bits: int, ftz: bool = False) -> Fraction | float:
        magnitude, sign = bits & self.sign - 1, -1 if bits & self.sign else 1
        exponent, digits = magnitude >> self.fraction, magnitude & (1 << self.fraction) - 1
        if magnitude > self.infinity:
            return math.copysign(math.nan, sign)
        if magnitude == self.infinity:
            return sign * math.inf
        if magnitude == 0 or (ftz and exponent == 0):
            return sign * 0.0
        digits += (1 << self.fraction) if exponent else 0
        return sign * digits * Fraction(2) ** (max(exponent, 1) - self.bias - self.fraction)

    def encode(self, value: Fraction | float, mode: str = NEAREST, ftz: bool = False, sat: bool = False) -> int:
        """Return the bits of the rounded value."""
        if isinstance(value, float):
            if math.isnan(value):
                return 0 if sat else self.nan
            if sat and (value <= 0 or value > 1):
                return 0 if value <= 0 else self.encode(Fraction(1))
            sign = self.sign if math.copysign(1, value) < 0 else 0
            if math.isinf(value) or value == 0:
                return sign | (self.infinity if value else 0)
            value = Fraction(value)
        if value == 0:
            return 0
        if sat:
            value = min(max(value, Fraction(0)), Fraction(1))
            if value == 0:
                return 0
        sign, magnitude = (self.sign if value < 0 else 0), abs(value)
        exponent = max(_exponent(magnitude), 1 - self.bias)
        digits = rounded(magnitude / Fraction(2) ** (exponent - self.fraction), mode, value < 0)
        bits = digits + (exponent + self.bias - 1 << self.fraction)  # the leading one counts in the exponent
        if bits >= self.infinity:
            stays = mode == ZERO or (mode == DOWN and value > 0) or (mode == UP and value < 0)
            bits = self.infinity - 1 if stays else self.infinity
        if ftz and bits < 1 << self.fraction:
            bits = 0
        return sign | bits


F16, BF16, F32, F64 = Format(16, 11, 15), Format(16, 8, 127), Format(32, 24, 127), Format(64, 53, 1023)
E4M3, E5M2 = Format(8, 4, 7), Format(8, 3, 15)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def _exponent(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def rounded(magnitude: Fraction, mode: str, negative: bool = False) -> int:
    """Round a magnitude to a whole number."""
    whole, rest = divmod(magnitude.numerator, magnitude.denominator)
    if mode in (NEAREST, AWAY):
        twice = 2 * rest - magnitude.denominator
        return whole + (twice > 0 or (twice == 0 and (mode == AWAY or whole % 2 == 1)))
    return whole + (rest > 0 and mode == (DOWN if negative else UP))


def is_special(x: Fraction | float) -> bool:
    return isinstance(x, float) and (math.isinf(x) or math.isnan(x))


def negative(x: Fraction | float) -> bool:
    return math.copysign(1, x) < 0 if isinstance(x, float) else x < 0


def add(x: Fraction | float, y: Fraction | float, mode: str = NEAREST) -> Fraction | float:
    if is_special(x) or is_special(y):
        return (x if is_special(x) else 0.0) + (y if is_special(y) else 0.0)
    total = Fraction(x) + Fraction(y)
    if total or (negative(x) != negative(y)):
        return total or (-0.0 if mode == DOWN else 0.0)
    return -0.0 if negative(x) else 0.0


def multiply(x: Fraction | float, y: Fraction | float) -> Fraction | float:
    sign = -1.0 if negative(x) != negative(y) else 1.0
    if is_special(x) or is_special(y):
        if math.isnan(x) or math.isnan(y) or x == 0 or y == 0:
            return math.nan
        return sign * math.inf
    return Fraction(x) * Fraction(y) or sign * 0.0


def divide(x: Fraction | float, y: Fraction | float) -> Fraction | float:
    sign = -1.0 if negative(x) != negative(y) else 1.0
    if math.isnan(x) or math.isnan(y) or (x == 0 and y == 0) or (is_special(x) and is_special(y)):
        return math.nan
    if is_special(x) or y == 0:
        return sign * math.inf
    return sign * 0.0 if is_special(y) or x == 0 else Fraction(x) / Fraction(y)


def root(x: Fraction | float) -> Fraction | float:
    """Return the root to 200 bits. One more bit says whether it is exact."""
    if x == 0 or math.isnan(x) or x == math.inf:
        return x
    if x < 0:
        return math.nan
    shift = 2 * max(200 - x.numerator.bit_length() // 2 + x.denominator.bit_length() // 2, 0)
    scaled, rest = divmod(x.numerator << shift, x.denominator)
    whole = math.isqrt(scaled)
    return Fraction(2 * whole + (whole * whole != scaled or rest != 0), 2) / Fraction(2) ** (shift // 2)


def extreme(x, y, most: bool, nan_wins: bool):
    """Return min or max. -0 is less than +0. NaN either loses against a number or is the result."""
    if math.isnan(x) or math.isnan(y):
        return math.nan if nan_wins or (math.isnan(x) and math.isnan(y)) else y if math.isnan(x) else x
    if x == y:
        return x if negative(x) != most else y
    return max(x, y) if most else min(x, y)
