"""Decides the device of a tensor: the emulated GPU, unless the program made the tensor on the host.

The memory is the CPU's in both cases. The host is recorded for each storage, so views, parameters
and `x.data` share the answer. The result of an operation on host tensors gets a new storage and
counts as on the GPU, because torch's operators do not report the tensors that they make.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from flash_attest.emulator.errors import NotCovered

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
SUITE = "flash_attest"
TOLD_THE_TRUTH = frozenset({"torch", SUITE})  # packages that need to know where tensors really are

_real_device = torch._C.TensorBase.device.__get__
_host: dict[int, StorageWeakRef] = {}
_most = 4096  # storages remembered before the freed ones are dropped


def real_device(tensor: torch.Tensor) -> torch.device:
    """Return the device on which torch itself has the tensor."""
    return _real_device(tensor)


def put_on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Record that the memory of a CPU tensor is the host's, and return the tensor."""
    global _most
    if isinstance(tensor, torch.Tensor) and (storage := _storage(tensor)) is not None:
        if len(_host) > _most:
            for key in [key for key, reference in list(_host.items()) if reference.expired()]:
                _host.pop(key, None)
            _most = max(_most, 2 * len(_host))
        # The reference keeps another storage from reusing the address.
        _host[storage._cdata] = StorageWeakRef(storage)
    return tensor


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the tensor's storage. None if it has none on the CPU, or hides it, as in
    torch.func.vmap.
    """
    if real_device(tensor) != CPU or tensor.layout != torch.strided:
        return None
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None


def on_host(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's memory counts as the host's."""
    return bool(_host) and (storage := _storage(tensor)) is not None and storage._cdata in _host


def on_gpu(tensor: torch.Tensor) -> bool:
    """Return whether the tensor counts as on the emulated GPU."""
    return real_device(tensor) == CPU and not on_host(tensor)


def asked_by_torch(depth: int = 2) -> bool:
    """Return whether the calling code belongs to torch or to this suite.

    depth: the number of frames from here to that code. If torch were told that a tensor is on the
    GPU, it would pass this device to its C++ code, which has no GPU.
    """
    return sys._getframe(depth).f_globals.get("__name__", "").partition(".")[0] in TOLD_THE_TRUTH


def asked_by_suite(depth: int = 2) -> bool:
    """Return whether the calling code belongs to this suite, which judges emulated results on the
    CPU.

    depth: the number of frames from here to that code.
    """
    return sys._getframe(depth).f_globals.get("__name__", "").partition(".")[0] == SUITE


def means_the_host(device: Any) -> bool:
    """Return whether the code three frames up, which names the CPU, means the host.

    If that code is in torch, it may only repeat the true device of a tensor. nn.Module is an
    exception, because it passes on the device that its user names.
    """
    name = sys._getframe(3).f_globals.get("__name__", "")
    if name.partition(".")[0] in TOLD_THE_TRUTH and name != "torch.nn.modules.module":
        return False
    return torch.device(device).type == "cpu"


def is_gpu(device: Any) -> bool:
    """Return whether the argument names the emulated GPU.

    Raises RuntimeError if it names another GPU.
    """
    if isinstance(device, bool) or not isinstance(device, (int, str, torch.device)):
        return False
    if isinstance(device, str):
        if device.partition(":")[0] != "cuda":
            return False
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "cuda":
            return False
        device = device.index or 0
    if device > 0:
        raise RuntimeError(f"cuda:{device}: the emulated machine has one GPU, cuda:0")
    return device == 0


def real(device: Any) -> Any:
    """Return the device that torch should use if a program requests this one."""
    return CPU if is_gpu(device) else device


def not_covered(name: str) -> Any:
    """Make a function that raises NotCovered with this name."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotCovered(f"{name} has no answer where the GPU is emulated: run this on a GPU, or leave it out there")

    return refuse
