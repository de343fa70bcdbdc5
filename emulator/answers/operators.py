"""torch.library: an operator that is registered for CUDA also runs for CPU tensors, because tensors
on the emulated GPU are CPU tensors.

If an operator has kernels for both devices, the kernel for CUDA is used, whichever was registered
first. If they were registered before the emulation began, as in a process that saw a GPU, only an
operator without a kernel for CPU tensors gets the one for CUDA.
"""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef
from torch.library import Library

from flash_attest.emulator.errors import NotCovered

ON_CPU = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU", "AutocastCUDA": "AutocastCPU"}  # dispatch keys
_init, _impl = Library.__init__, Library.impl
_register_kernel, _register_autocast = CustomOpDef.register_kernel, CustomOpDef.register_autocast
_library_autocast = torch.library.register_autocast
OF_TORCH = {"aten", "prims", "_native"}  # namespaces
_taken_over: list[Library] = []  # a library's kernels end with it
# (operator, CPU key) pairs that now have a kernel for CUDA.
_for_cuda: set[tuple[str, str]] = set()
_defined_for_cuda: weakref.WeakSet[CustomOpDef] = weakref.WeakSet()


def _registered_by_torch() -> bool:
    """Return whether torch itself is registering. Its operators have a kernel for each device,
    which they keep.
    """
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name not in ("torch.library", __name__) and not name.startswith("torch._library"):
            return name.partition(".")[0] == "torch"
        frame = frame.f_back
    return False


@functools.wraps(_init)
def _library(self: Library, ns: str, kind: str, dispatch_key: str = "") -> None:
    """Create a library for CUDA without a dispatch key, because `impl` gives the key for each
    operator.
    """
    replaced = dispatch_key in ON_CPU and not _registered_by_torch()
    _init(self, ns, kind, "" if replaced else dispatch_key)
    self.dispatch_key = dispatch_key


@functools.wraps(_impl)
def _implemented(self: Library, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> Any:
    if _registered_by_torch():
        return _impl(self, op_name, fn, dispatch_key, **options)
    key = dispatch_key or self.dispatch_key
    name = op_name if isinstance(op_name, str) else op_name._schema.name + "." * bool(op_name._schema.overload_name)
    if not isinstance(op_name, str):
        name += op_name._schema.overload_name
    qualified = f"{self.ns}::{name.split('::')[-1]}"
    if key not in ON_CPU:
        if (qualified, key) in _for_cuda:
            return None
        return _impl(self, op_name, fn, dispatch_key, **options)
    if self.ns == "aten":
        raise NotCovered(
            f"{qualified} for {key}: an operator of torch itself cannot be replaced where the GPU is emulated, "
            "as the emulator calls it, too"
        )
    # This also uses the CUDA key, for operators that take a device but no tensor.
    _impl(self, op_name, fn, key, **options)
    options.pop("allow_override", None)
    _for_cuda.add((qualified, ON_CPU[key]))
    with warnings.catch_warnings():
        # The warning would be about the CPU kernel, which this one replaces.
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
        return _impl(self, op_name, fn, ON_CPU[key], **options)


@functools.wraps(_register_kernel)
def _with_kernel(self: CustomOpDef, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
    types = [device_types] if isinstance(device_types, str) or device_types is None else list(device_types)
    if "cuda" in types:
        _defined_for_cuda.add(self)
        types = list(dict.fromkeys([*types, "cpu"]))
    elif self in _defined_for_cuda:
        types = [each for each in types if each != "cpu"]
        if not types:
            return fn if fn is not None else lambda function: function
    with _unchanged(Library, "impl", _impl):  # `types` already includes the CPU
        result = _register_kernel(self, None if types == [None] else types, fn)
    if fn is not None:
        return result

    def register(function: Callable[..., Any]) -> Any:
        with _unchanged(Library, "impl", _impl):
            return result(function)

    return register


class _unchanged:
    """Restores the original method inside this block."""

    def __init__(self, owner: type, name: str, original: Callable[..., Any]):
        self.owner, self.name, self.original = owner, name, original

    def __enter__(self) -> None:
        self.before = vars(self.owner)[self.name]
        setattr(self.owner, self.name, self.original)

    def __exit__(self, *_: object) -> None:
        setattr(self.owner, self.name, self.before)


def take_over() -> None:
    """Give operators that were registered for CUDA before the emulation began a kernel for CPU
    tensors, too.
    """
    registered = getattr(torch.library, "_impls", ())  # private: "namespace/name.overload/key", 1,800 of them torch's
    for entry in [each for each in registered if each.endswith("CUDA")]:
        namespace, name, key = entry.split("/")
        if key in ON_CPU and namespace not in OF_TORCH:
            qualified = f"{namespace}::{name}"
            if not torch._C._dispatch_has_kernel_for_dispatch_key(qualified, ON_CPU[key]):
                _taken_over.append(library := Library(namespace, "FRAGMENT"))
                _impl(library, qualified, _redispatched(namespace, name, key), ON_CPU[key])


def _redispatched(namespace: str, name: str, key: str) -> Callable[..., Any]:
    """Return a function that calls an operator's kernel for a dispatch key."""
    name, _, overload = name.partition(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    return lambda *arguments, **keywords: operator.redispatch(keys, *arguments, **keywords)


def _on_cpu(device_type: str) -> str:
    return "cpu" if device_type == "cuda" else device_type


@functools.wraps(_register_autocast)
def _autocast_of(self: CustomOpDef, device_type: str, cast_inputs: torch.dtype) -> Any:
    return _register_autocast(self, _on_cpu(device_type), cast_inputs)


@functools.wraps(_library_autocast)
def _autocast(op: Any, device_type: str, cast_inputs: torch.dtype, /, **options: Any) -> Any:
    return _library_autocast(op, _on_cpu(device_type), cast_inputs, **options)


LIBRARY = {"__init__": _library, "impl": _implemented}
DEFINITION = {"register_kernel": _with_kernel, "register_autocast": _autocast_of}
FUNCTIONS = {"register_autocast": _autocast}
