"""torch.Tensor and the functions that make tensors: they map "cuda" to the CPU, and tensors say
that they are on a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils._device import DeviceContext, _device_constructors

from flash_attest.emulator.answers import memory
from flash_attest.emulator.answers.memory import (
    GPU,
    asked_by_suite,
    asked_by_torch,
    is_gpu,
    means_the_host,
    on_gpu,
    on_host,
    put_on_host,
    real,
)

# Read these before anything is replaced, because torch compares the functions that it calls with
# them.
_set = _device_constructors()
_TENSOR = torch.Tensor
_to, _type = _TENSOR.to, _TENSOR.type
LEGACY = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")


# ---- making tensors ------------------------------------------------------------------------------


def _default_is_gpu() -> bool:
    """Return whether a tensor is on the GPU if the code two frames up makes it without naming a
    device.

    It depends on torch.set_default_device and `with torch.device`. Inputs that the suite makes are
    on the GPU, because they go to the kernels that it judges.
    """
    return asked_by_suite(3) or _default_device_is_gpu()


def _default_device_is_gpu() -> bool:
    for i in reversed(range(torch._C._len_torch_function_stack())):
        if isinstance(mode := torch._C._get_function_stack_at(i), DeviceContext):
            return mode.device.type == "cuda"
    # The mode is off while torch makes an internal call.
    device = torch.utils._device.CURRENT_DEVICE
    return device is not None and device.type == "cuda"


def _places(kwargs: dict[str, Any]) -> bool | None:
    """Replace the device in the arguments of the caller's call.

    Returns whether the result is on the GPU; None if the call does not determine that.
    """
    if kwargs.get("pin_memory"):  # torch cannot pin memory without a GPU
        kwargs["pin_memory"] = False
    device = kwargs.get("device")
    if device is None:
        return None
    kwargs["device"] = real(device)
    return is_gpu(device) or not means_the_host(device)


def _placed(result: Any, gpu: bool, kwargs: dict[str, Any]) -> Any:
    if not gpu and kwargs.get("out") is None and isinstance(result, torch.Tensor):
        put_on_host(result)
    return result


def makes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that makes tensors from sizes and numbers, such as torch.empty."""

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        gpu = _places(kwargs)
        return _placed(function(*args, **kwargs), _default_is_gpu() if gpu is None else gpu, kwargs)

    return make


def makes_like(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function or method whose first argument determines the device, such as
    torch.empty_like or x.new_empty.
    """

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        gpu = _places(kwargs)
        if gpu is None:
            like = args[0] if args else kwargs.get("input")
            gpu = not (isinstance(like, torch.Tensor) and on_host(like))
        return _placed(function(*args, **kwargs), gpu, kwargs)

    return make


def converts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that makes a tensor from data, such as torch.as_tensor.

    A tensor stays on its device unless the call names another.
    """

    @functools.wraps(function)
    def convert(data: Any, *args: Any, **kwargs: Any) -> Any:
        gpu = _places(kwargs)
        if not isinstance(data, torch.Tensor):
            if hasattr(data, "__cuda_array_interface__"):
                data, gpu = _array_of(data), True if gpu is None else gpu
            return _placed(function(data, *args, **kwargs), _default_is_gpu() if gpu is None else gpu, kwargs)
        before = on_gpu(data)
        gpu = before if gpu is None else gpu
        result = function(data, *args, **kwargs)
        if gpu != before and _share(result, data):
            result = result.clone()
        return _placed(result, gpu, kwargs)

    return convert


def _array_of(data: Any) -> np.ndarray:
    """Return the memory of a Numba array as a NumPy array, without a copy."""

    holder = SimpleNamespace(__array_interface__={**data.__cuda_array_interface__, "version": 3}, owner=data)
    return np.asarray(holder)


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a is b or a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function whose result shares memory of the host, such as torch.from_numpy."""

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result if asked_by_suite() else put_on_host(result)

    return make


CONVERTS = ("tensor", "as_tensor", "asarray")
LIKE = tuple(f"{name}_like" for name in ("empty", "zeros", "ones", "full", "rand", "randn", "randint"))


def _makers(owner: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions of a module that take a device, by name, according to torch's own
    list.
    """
    known = {id(function) for function in _set}
    for name, function in list(vars(owner).items()):
        if id(function) in known:
            yield name, converts(function) if name in CONVERTS else makes(function)


_load, _get_default_device = torch.load, torch.get_default_device


@functools.wraps(_load)
def _loaded(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Load a file. Tensors that the file records as on a GPU are on the emulated GPU."""
    if map_location is None or is_gpu(map_location):
        map_location = "cpu"
    elif isinstance(map_location, dict):
        map_location = {real_name(old): real_name(new) for old, new in map_location.items()}
    return _load(f, map_location, *args, **kwargs)


def real_name(device: Any) -> Any:
    return "cpu" if is_gpu(device) else device


@functools.wraps(_get_default_device)
def _default_device() -> torch.device:
    return GPU if _default_device_is_gpu() else _get_default_device()


def _in_context(self: DeviceContext, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Replace DeviceContext.__torch_function__: if the default device is the GPU, torch gets the
    CPU.
    """
    kwargs = kwargs or {}
    if func in _set and kwargs.get("device") is None:
        kwargs["device"] = real(self.device)
    return func(*args, **kwargs)


def _compile(model: Any = None, **_: Any) -> Any:
    """Replace torch.compile: the kernels that it makes for a GPU need a GPU, so functions run
    uncompiled.
    """
    return model if model is not None else lambda function: function


# ---- asking and moving tensors
# --------------------------------------------------------------------


def _device(self: torch.Tensor) -> torch.device:
    return GPU if not asked_by_torch() and on_gpu(self) else memory.real_device(self)


def _is_cuda(self: torch.Tensor) -> bool:
    return not asked_by_torch() and on_gpu(self)


def _get_device(self: torch.Tensor) -> int:
    return 0 if not asked_by_torch() and on_gpu(self) else -1


def _interface(self: torch.Tensor) -> dict[str, Any]:
    """Return where a tensor lies in memory, for packages that take GPU tensors by this interface,
    such as numba.cuda.as_cuda_array.
    """
    if not on_gpu(self):
        raise AttributeError(
            f"a tensor on {memory.real_device(self)} has no __cuda_array_interface__: should be on cuda, as x.cuda() is"
        )
    if self.requires_grad:
        raise RuntimeError("a tensor that requires gradients has no __cuda_array_interface__: pass x.detach()")
    return {**self.numpy().__array_interface__, "version": 2}


@functools.wraps(_to)
def _moved(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return _move(self, args, kwargs)


def _move(self: torch.Tensor, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    """Replace Tensor.to: a move between host and GPU makes a copy, as on a real GPU."""
    target = kwargs.get("device")
    if target is None and args and (isinstance(args[0], (str, torch.device)) or type(args[0]) is int):
        target = args[0]
    other = kwargs.get("other", args[0] if args else None)
    before = on_gpu(self)
    if target is not None:
        gpu = is_gpu(target) or not means_the_host(target)
    else:
        gpu = on_gpu(other) if isinstance(other, torch.Tensor) else before
    if "device" in kwargs:
        kwargs["device"] = real(kwargs["device"])
    elif target is not None:
        args = (real(target), *args[1:])
    result = _to(self, *args, **kwargs)
    if memory.real_device(result) != memory.CPU:  # for example meta
        return result
    if gpu != before and _share(result, self):
        result = result.clone()
    return result if gpu else put_on_host(result)


def _cuda(
    self: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> torch.Tensor:
    format_ = {} if memory_format is None else {"memory_format": memory_format}
    return _move(self, (GPU if device is None else device,), format_)


def _cpu(self: torch.Tensor, memory_format: Any = None) -> torch.Tensor:
    format_ = {} if memory_format is None else {"memory_format": memory_format}
    return _move(self, (memory.CPU,), format_)


def _pinned(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    return put_on_host(self.clone())


@functools.wraps(_type)
def _typed(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """Replace Tensor.type: "torch.cuda.FloatTensor" is the type of a tensor on the GPU."""
    if dtype is None:
        name = _type(self)
        return name if asked_by_torch() or not on_gpu(self) else name.replace("torch.", "torch.cuda.", 1)
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        return _cuda(_type(self, dtype.replace("torch.cuda.", "torch.", 1)))
    return _type(self, dtype, non_blocking, **kwargs)


TENSORS = {
    "device": property(_device),
    "is_cuda": property(_is_cuda),
    "__cuda_array_interface__": property(_interface),
    "get_device": _get_device,
    "cuda": _cuda,
    "cpu": _cpu,
    "to": _moved,
    "type": _typed,
    "pin_memory": _pinned,
    "record_stream": lambda self, stream: None,
    **{
        name: makes_like(getattr(_TENSOR, name))
        for name in ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided")
    },
}
MAKERS = {
    **dict(_makers(torch)),
    **{name: makes_like(getattr(torch, name)) for name in LIKE},
    **{name: _on_host(getattr(torch, name)) for name in ("from_numpy", "frombuffer")},
    "compile": functools.wraps(torch.compile)(_compile),
    "load": _loaded,
    "get_default_device": _default_device,
}
OTHER_MAKERS = tuple((owner, dict(_makers(owner))) for owner in (torch.fft, torch.nested))
CONTEXT = {"__torch_function__": _in_context}
