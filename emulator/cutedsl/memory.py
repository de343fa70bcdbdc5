"""Hands CPU tensors to CuTe DSL as tensors on a GPU, at addresses that the emulator gives them."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils.dlpack import to_dlpack

from flash_attest.emulator.answers.memory import real_device

GPU = 2  # kDLCUDA


class _Head(ctypes.Structure):
    """The first fields of a DLTensor."""

    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


def is_ours(value: Any) -> bool:
    """Return whether this is a tensor in the CPU's memory, which stands for one of a GPU."""
    return type(value) in (torch.Tensor, torch.nn.Parameter) and real_device(value).type == "cpu"


class OnGpu:
    """A tensor that DLPack shows as one on a GPU. address: another one for its first element."""

    def __init__(self, tensor: torch.Tensor, address: int | None = None):
        self.tensor, self.address = tensor.detach(), address

    def __dlpack_device__(self) -> tuple[int, int]:
        return GPU, 0

    def __dlpack__(self, **_: Any) -> Any:
        capsule = to_dlpack(self.tensor)
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        head = _Head.from_address(get(capsule, b"dltensor"))
        head.device_type, head.device_id = GPU, 0
        if self.address is not None:
            head.data = self.address
        return capsule
