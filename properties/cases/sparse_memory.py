"""Sparse memory: tensors whose elements lie further apart than 32 bits can count, in pages that exist only once touched."""

from __future__ import annotations

import ctypes
import mmap
import sys

import torch

from properties.failures import Reason, Undecided

BEHIND = 2**32  # elements from the first to the last along a dimension that is spread
BEFORE = 2**31  # elements before the first, where a negative offset lands
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)  # in Python from 3.13 on
ATTACH_GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL


def spread(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """The same values, stored so far apart along `dim` that the last is 2^32 elements behind the first.

    An offset that is cut to 32 bits, signed or not, in elements or bytes, then hits another element, or memory that holds 0.
    A tensor with a single index along `dim` comes back unchanged.
    """
    count = tensor.shape[dim]
    if count < 2:
        return tensor
    one = tensor.narrow(dim, 0, 1).contiguous()
    strides = list(one.stride())
    strides[dim] = -(-BEHIND // (count - 1) // 64) * 64
    memory = untouched(BEFORE + (count - 1) * strides[dim] + one.numel(), tensor.dtype, tensor.device)
    return memory.as_strided(tensor.shape, strides, BEFORE).copy_(tensor)


def untouched(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """(count,) zeros in memory whose pages exist once they are touched. Raises Undecided if the machine has none."""
    nbytes = count * dtype.itemsize
    try:
        if device.type == "cuda":
            return torch.as_tensor(_Managed(nbytes, device), device=device).view(dtype)
        return torch.frombuffer(_mapping(nbytes), dtype=dtype)
    except OSError as error:
        what = f"one of its inputs needs {nbytes / 2**30:.0f} GiB of address space: {error}"
        raise Undecided(f"no sparse memory on {device.type} here: {what}", Reason.NO_SPARSE_MEMORY) from error


def _mapping(nbytes: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        raise OSError("this system has no anonymous mappings")
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # otherwise each row takes 2 MiB where huge pages are on for all memory
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


class _Managed:
    """CUDA's managed memory for torch.as_tensor, which keeps this object alive as long as a tensor uses it."""

    def __init__(self, nbytes: int, device: torch.device):
        self.address = ctypes.c_uint64()
        try:
            self.driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        except OSError:
            raise OSError("no CUDA driver found") from None
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # this makes sure that the context exists
            error = self.driver.cuMemAllocManaged(ctypes.byref(self.address), ctypes.c_size_t(nbytes), ATTACH_GLOBAL)
        if error:
            raise OSError(f"the driver gives no managed memory (CUDA error {error})")
        self.__cuda_array_interface__ = dict(
            shape=(nbytes,), typestr="|u1", data=(self.address.value, False), version=3
        )

    def __del__(self):
        if self.address:
            self.driver.cuMemFree_v2(self.address)
