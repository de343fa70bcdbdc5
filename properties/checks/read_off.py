"""Guesses the cause of wrong values from the values: NaN, zeros, a factor with a name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.reading import Guess, Reading, Values

# Fewer elements, or elements of nearly the same size, do not show that a factor is constant: any
# value is some factor of another.
LEAST, SPREAD = 8, 1.25
NOISE = 30.0  # an element tells something about a factor if it is this many sigma from 0
LIMIT = 10.0  # sigma, for the error of an element beside a constant factor

LN2 = math.log(2)
FACTORS: tuple[tuple[str, Callable[[Case], float]], ...] = (
    ("the sign is wrong", lambda case: -1.0),
    ("2", lambda case: 2.0),
    ("1/2", lambda case: 0.5),
    ("ln 2", lambda case: LN2),
    ("1 / ln 2, the factor of a logarithm in base 2", lambda case: 1 / LN2),
    ("softmax_scale", lambda case: case.scale),
    ("1 / softmax_scale", lambda case: 1 / case.scale if case.scale else math.nan),
    ("softmax_scale squared", lambda case: case.scale**2),
    ("headdim", lambda case: float(case.headdim)),
    ("1 / headdim", lambda case: 1 / case.headdim),
    ("nheads / nheads_k", lambda case: case.nheads / case.nheads_k),
    ("nheads_k / nheads", lambda case: case.nheads_k / case.nheads),
)
OFFSETS: tuple[tuple[str, Callable[[Case], float]], ...] = (
    ("ln 2: l is twice the row sum", lambda case: LN2),
    ("-ln 2: l is half the row sum", lambda case: -LN2),
    ("ln seqlen_k", lambda case: math.log(max(1, case.seqlen_k))),
    ("-ln seqlen_k: l is the mean, not the sum", lambda case: -math.log(max(1, case.seqlen_k))),
)
NAN = "NaN: inf - inf, inf / inf, 0 * inf or 0 / 0, or memory that was never written"
ZEROS = (
    "zeros: rows or columns that are skipped or never written, a launch whose error was not checked, "
    "or weights that underflow"
)


def guesses(values: Values) -> Iterator[Guess]:
    """Yield guesses at the cause, from the wrong values of one failing case."""
    if values.defined and bool(values.got.isnan().any()):
        yield Guess(NAN)
        return
    if values.defined and _zeros(values):
        yield Guess(ZEROS, holds=_same_tensor(values, _zeros))
        return
    if (factor := _fitted(values)) is not None:
        words = f"a constant factor: the wrong elements of {values.name} are {factor:.4g} times what they should be"
        for name, value in FACTORS:
            fits = _fits_factor(value)
            if fits(values) and abs(value(values.case) - 1) > 1e-9:
                yield Guess(words, name, holds=_same_tensor(values, fits))
        yield Guess(words, holds=_same_tensor(values, _fits_factor(lambda case: factor)), least=2)
    if values.name == "lse" and values.defined:
        for name, value in OFFSETS:
            fits = _fits_offset(value)
            if fits(values) and value(values.case):
                words = "a constant offset: the wrong elements of lse are off by the same number"
                yield Guess(words, name, holds=_same_tensor(values, fits))


def _same_tensor(values: Values, test: Callable[[Values], bool | None]) -> Callable[[Reading], bool | None]:
    """Return the test for readings of the same tensor. Others cannot tell."""
    return lambda reading: test(reading) if isinstance(reading, Values) and reading.name == values.name else None


def _zeros(values: Values) -> bool:
    return bool((values.got == 0).all())


def _telling(values: Values) -> torch.Tensor:
    """Return the elements that would show a constant factor. bool (n,)."""
    return values.want.isfinite() & values.got.isfinite() & (values.want.abs() > NOISE * values.sigma)


def _tells(values: Values, telling: torch.Tensor) -> bool:
    """Return whether these elements show that a factor is constant, in more than one row."""
    if int(telling.sum()) < LEAST or len(values.rows[telling].unique()) < 2:
        return False
    sizes = values.want[telling].abs()
    return bool(sizes.max() > SPREAD * sizes.min())


def _fitted(values: Values) -> float | None:
    """Return the constant factor of the wrong elements, or None if there is none."""
    telling = _telling(values)
    if not bool(values.got.isfinite().all()) or not _tells(values, telling):
        return None
    g, w = values.got[telling], values.want[telling]
    factor = ((g / w) * w.abs()).sum().item() / w.abs().sum().item()
    return factor if factor and abs(factor - 1) > 1e-4 and _fits_factor(lambda case: factor)(values) else None


def _fits_factor(value: Callable[[Case], float]) -> Callable[[Values], bool | None]:
    """Return the test of whether all wrong elements are this factor of what they should be."""

    def fits(values: Values) -> bool | None:
        factor = value(values.case)
        if not math.isfinite(factor) or not len(values.got):
            return False
        finite = values.want.isfinite()
        off = (values.got - factor * values.want).abs() <= LIMIT * values.sigma * (1 + abs(factor))
        return bool(off[finite].all()) if bool(finite.any()) else None

    return fits


def _fits_offset(value: Callable[[Case], float]) -> Callable[[Values], bool | None]:
    """Return the test of whether all wrong elements are off by this number."""

    def fits(values: Values) -> bool | None:
        offset = value(values.case)
        finite = values.want.isfinite()
        off = (values.got - values.want - offset).abs() <= LIMIT * values.sigma + 1e-6 * abs(offset)
        return bool(off[finite].all()) if bool(finite.any()) else None

    return fits
