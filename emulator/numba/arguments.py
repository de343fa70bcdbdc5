"""Converts the arguments of a launch to arguments of the PTX, as Numba passes them to the driver,
with names for findings.
"""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numba.cuda import types
from numba.cuda.args import ArgHint, In, Out
from numba.cuda.cudadrv.devicearray import DeviceNDArrayBase
from numba.cuda.np import numpy_support
from numba.cuda.typing.typeof import typeof_impl

from flash_attest.emulator.errors import NotCovered

NAMES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("bool", "float16", "float32", "float64", "complex64", "complex128"),
)
DTYPES = {getattr(torch, name): np.dtype(name) for name in NAMES}
FLOATS = {16: "<e", 32: "<f", 64: "<d"}
NULL = bytes(8)


# ---- types ---------------------------------------------------------------------------------------


def register() -> None:
    """Register the type of CPU tensors with Numba.

    On a GPU, Numba finds the same types through DLPack.
    """
    typeof_impl.register(torch.Tensor)(typeof_tensor)


def typeof_tensor(tensor: torch.Tensor, context: Any = None) -> types.Array:
    """Return the type of a tensor.

    Raises TypeError, ValueError for a tensor that Numba refuses on a GPU too.
    """
    if tensor.device.type != "cpu":
        raise ValueError(f"a tensor of the shape {tuple(tensor.shape)} is on {tensor.device}: should be on the CPU")
    if tensor.requires_grad:
        raise ValueError(
            f"a tensor of the shape {tuple(tensor.shape)} requires gradients, which Numba does not support: "
            "pass x.detach()"
        )
    if tensor.layout != torch.strided:
        raise TypeError(f"a tensor has the layout {tensor.layout}: should be torch.strided")
    if tensor.is_contiguous():
        return array_type(tensor.dtype, tensor.dim(), "C")
    fortran = tensor.permute(*reversed(range(tensor.dim()))).is_contiguous()
    return array_type(tensor.dtype, tensor.dim(), "F" if fortran else "A")


@functools.cache
def array_type(dtype: torch.dtype, dims: int, layout: str) -> types.Array:
    if dtype == torch.bfloat16:
        raise TypeError("NumPy has no bfloat16: pass x.view(torch.int16), and convert the bits in the kernel")
    if dtype not in DTYPES:
        raise TypeError(f"Numba has no arrays of {dtype}")
    return types.Array(numpy_support.from_dtype(DTYPES[dtype]), dims, layout)


# ---- values --------------------------------------------------------------------------------------


def flat(name: str, type_: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, argument) for each PTX parameter of an argument. Each is a tensor, or the bytes
    of a number.
    """
    if isinstance(type_, types.Array):
        yield from _array(name, type_, value)
    elif isinstance(type_, types.Boolean):
        yield name, struct.pack("<?", value)
    elif isinstance(type_, types.Integer):
        yield name, _integer(name, type_, value).to_bytes(type_.bitwidth // 8, "little")
    elif isinstance(type_, types.Float):
        yield name, struct.pack(FLOATS[type_.bitwidth], value)
    elif isinstance(type_, types.Complex):
        yield f"{name}.real", struct.pack(FLOATS[type_.bitwidth // 2], value.real)
        yield f"{name}.imag", struct.pack(FLOATS[type_.bitwidth // 2], value.imag)
    elif isinstance(type_, types.BaseTuple):
        fields = getattr(value, "_fields", None)
        for i, (of, part) in enumerate(zip(type_, value, strict=True)):
            yield from flat(f"{name}.{fields[i]}" if fields else f"{name}[{i}]", of, part)
    elif isinstance(type_, types.EnumMember):
        yield from flat(name, type_.dtype, value.value)
    elif isinstance(type_, (types.NPDatetime, types.NPTimedelta)):
        yield name, struct.pack("<q", value.view(np.int64))
    elif isinstance(type_, types.Record):
        raise NotCovered(f"{name} is a record, which is not covered on the CPU: pass its fields")
    else:
        raise TypeError(f"{name}={value!r} has the type {type_}, which kernels do not take")


def _integer(name: str, type_: types.Integer, value: Any) -> int:
    """Return the integer modulo 2**bits. Numba passes integers through ctypes, which does the
    same.
    """
    try:
        return operator.index(value) % 2**type_.bitwidth
    except TypeError:
        raise TypeError(f"{name}={value!r} should be an integer ({type_})") from None


def _array(name: str, type_: types.Array, value: Any) -> Iterator[tuple[str, Any]]:
    tensor = tensor_of(name, value)
    if DTYPES.get(tensor.dtype) != _dtype(type_) or tensor.dim() != type_.ndim or not _laid_out(tensor, type_.layout):
        has = f"{tensor.dim()}-D {tensor.dtype}, shape {tuple(tensor.shape)}, strides {tensor.stride()}"
        raise TypeError(f"{name} is {has}: the kernel was compiled for {type_}")
    size = tensor.element_size()
    yield f"{name}.meminfo", NULL
    yield f"{name}.parent", NULL
    yield f"{name}.size", struct.pack("<q", tensor.numel())
    yield f"{name}.itemsize", struct.pack("<q", size)
    yield name, tensor
    for i, n in enumerate(tensor.shape):
        yield f"{name}.shape[{i}]", struct.pack("<q", n)
    for i, n in enumerate(tensor.stride()):
        yield f"{name}.strides[{i}]", struct.pack("<q", n * size)


@functools.cache
def _dtype(type_: types.Array) -> np.dtype:
    """Return the dtype of the tensor that carries an array of this type."""
    if isinstance(type_.dtype, (types.NPDatetime, types.NPTimedelta)):
        return np.dtype("int64")
    return numpy_support.as_dtype(type_.dtype)


def _laid_out(tensor: torch.Tensor, layout: str) -> bool:
    if layout == "A":
        return True
    return (tensor if layout == "C" else tensor.permute(*reversed(range(tensor.dim())))).is_contiguous()


def tensor_of(name: str, value: Any) -> torch.Tensor:
    """Return a tensor in the memory of an array: NumPy's, Numba's (on the device or not), or any
    array with DLPack.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, ArgHint):
        return _hinted(tensor_of(name, value.value), value)
    if not isinstance(value, np.ndarray):
        if isinstance(value, DeviceNDArrayBase):  # its interface leaves out strides of 0
            pointer = value.device_ctypes_pointer.value or 0
            value = numpy_of(
                dict(shape=value.shape, strides=value.strides, typestr=value.dtype.str, data=(pointer, False))
            )
        elif hasattr(value, "__cuda_array_interface__"):
            value = numpy_of(value.__cuda_array_interface__)
        else:
            return torch.from_dlpack(value)
    if value.dtype.kind in "mM":
        value = value.view(np.int64)
    if value.dtype.kind == "V":
        raise NotCovered(f"{name} is an array of records, which is not covered on the CPU: pass arrays of its fields")
    if not value.flags.writeable:
        value = numpy_of(value.__array_interface__)
    try:
        return torch.from_numpy(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}, {value.dtype}, strides {value.strides}: {error}") from None


def numpy_of(interface: dict) -> np.ndarray:
    """Return a view of the memory that an array interface describes.

    The view is writable, because the kernel's type decides whether it writes.
    """
    described = type("Described", (), {})()
    described.__array_interface__ = {**interface, "data": (interface["data"][0], False), "version": 3}
    return np.asarray(described)


def _hinted(tensor: torch.Tensor, hint: ArgHint) -> torch.Tensor:
    """Prepare a tensor for cuda.In or cuda.Out. As on a GPU, In is not copied back and Out is
    uninitialised.
    """
    if isinstance(hint, In):
        return tensor.clone()
    if type(hint) is Out and tensor.is_contiguous():
        tensor.view(-1).view(torch.uint8).fill_(0xFF)
    return tensor
