"""The processor's modes, and the random number generators of numpy and Python."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable

import numpy
import torch

from flash_attest.properties.state.thing import Import, Thing

TINY = 5e-324  # becomes 0 if the processor flushes denormal numbers

# The states of the generators are read from memory, as the public functions take 50 microseconds.


def _memory(address: int, size: int) -> tuple[Callable[[], bytes], Callable[[bytes], None]]:
    return lambda: ctypes.string_at(address, size), lambda state: ctypes.memmove(address, state, size) and None


NUMPY = numpy.random.get_bit_generator()  # MT19937: 624 numbers and a position
PYTHON = random.seed.__self__  # random.Random: a header, a position and 624 numbers
MERSENNE = 625 * 4
_numpy_random = _memory(NUMPY.ctypes.state_address, MERSENNE)
_python_random = _memory(id(PYTHON) + object.__basicsize__, MERSENNE)

try:
    _rounding, _set_rounding = ctypes.CDLL(None).fegetround, ctypes.CDLL(None).fesetround
except (OSError, AttributeError):  # this C library lacks the functions
    _rounding, _set_rounding = (lambda: 0), (lambda mode: None)

THINGS = (
    Thing("the processor's denormal numbers (True: flushed to 0)", lambda: TINY * 1.0 == 0, torch.set_flush_denormal),
    Thing("the processor's rounding mode", _rounding, _set_rounding),
    Thing(
        "numpy's random numbers",
        *_numpy_random,
        imported=Import.REMARK,
        draw=numpy.random.random,
        own="numpy.random.default_rng",
    ),
    Thing("Python's random numbers", *_python_random, imported=Import.REMARK, draw=random.random, own="random.Random"),
)
