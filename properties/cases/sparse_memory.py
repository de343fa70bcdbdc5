"""Memory that takes space only where it is touched: for tensors whose elements lie further apart than 32 bits can count."""

from __future__ import annotations

import ctypes
import mmap
import sys

import torch

from properties.failures import Undecided
from properties.judging.verdict import SHOWS_ELSEWHERE

BEHIND = 2**32  # elements from the first to the last along a dimension that is spread
BEFORE = 2**31  # elements before the first: where an offset that became negative lands
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)  # in Python from 3.13 on
ATTACH_GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL


def spread(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """The same values, with those along `dim` so far apart that the last is 2^32 elements behind the first.

    An offset in 32 bits, signed or not, in elements or bytes, is then that of another element, or of memory that holds 0.
    A tensor with a single index along `dim` comes back as it is.
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
    """(count,) of 0, in memory that is there once it is touched. Raises Undecided where there is none such."""
    nbytes = count * dtype.itemsize
    try:
        if device.type == "cuda":
            return torch.as_tensor(_Managed(nbytes, device), device=device).view(dtype)
        return torch.frombuffer(_mapping(nbytes), dtype=dtype)
    except OSError as error:
        what = f"{nbytes / 2**30:.0f} GiB more for one of its inputs: {error}"
        raise Undecided(f"shows in memory that is never touched{SHOWS_ELSEWHERE}{device.type} ({what})") from error


def _mapping(nbytes: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        raise OSError("this system does not give memory that takes no space")
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # else each row takes 2 MiB, where huge pages are for everybody
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


class _Managed:
    """CUDA's managed memory, for torch.as_tensor, which keeps this object for as long as there is a tensor of it."""

    def __init__(self, nbytes: int, device: torch.device):
        self.address = ctypes.c_uint64()
        try:
            self.driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        except OSError:
            raise OSError("there is no CUDA driver to ask for it") from None
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # whose context is made by then
            error = self.driver.cuMemAllocManaged(ctypes.byref(self.address), ctypes.c_size_t(nbytes), ATTACH_GLOBAL)
        if error:
            raise OSError(f"the driver gives none (CUDA error {error})")
        self.__cuda_array_interface__ = dict(
            shape=(nbytes,), typestr="|u1", data=(self.address.value, False), version=3
        )

    def __del__(self):
        if self.address:
            self.driver.cuMemFree_v2(self.address)
