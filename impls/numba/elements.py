"""Converts elements of float32, float16 and bfloat16 tensors to float32 and back.

NumPy, and so Numba's arrays, have no bfloat16. It is passed as its bits in int16.
"""

from numba import float32, int16, int32
from numba.cuda import libdevice, types
from numba.cuda.extending import overload
from numba.cuda.types import float16


def to_float(x):
    """Convert an element of any dtype to float32, exactly."""
    raise NotImplementedError("called from kernels only")


def from_float(x, like):
    """Round a float32 to the dtype of the array `like`, to nearest, ties to even."""
    raise NotImplementedError("called from kernels only")


@overload(to_float)
def _to_float(x):
    if x == types.int16:
        return lambda x: libdevice.int_as_float(int32(x) << 16)
    return lambda x: float32(x)


def _bfloat16(x, like):
    bits = libdevice.float_as_int(x)
    if x != x:
        return int16(0x7FC0)
    return int16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


@overload(from_float)
def _from_float(x, like):
    return {types.int16: _bfloat16, types.float16: lambda x, like: float16(x), types.float32: lambda x, like: x}[
        like.dtype
    ]
