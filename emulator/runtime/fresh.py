"""Memory that torch.empty and similar functions return, and which of its bytes have been written.

Kernels announce their accesses, and operators of PyTorch come through the dispatcher. Other writes
(through NumPy, in C++ code of the host) are not known, so a read that is found here may be right.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from flash_attest.emulator.runtime.library import runtime

FRESH = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
)
LARGEST = 2**26  # bytes; larger storages are not followed
_KEYS = {"cpu": torch._C.DispatchKey.CPU, "cuda": torch._C.DispatchKey.CUDA}


class OperatorsSeen(TorchDispatchMode):
    """Calls `done` after each operator of PyTorch in this block, also within custom operators."""

    supports_higher_order_operators = True  # flex_attention is such an operator; this mode does not change it

    def __init__(self, device: str):
        super().__init__()
        self.device = device

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled code run as it does without this mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing torch._dynamo at the first operator, which takes seconds.

        Once a call has imported it, `_seen_uncompiled` keeps torch.compile from compiling this
        mode.
        """
        return False

    def done(self, func: Any, args: tuple, kwargs: dict, result: Any) -> None:
        """Look at a call that has been made."""
        raise NotImplementedError

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen = self._seen_uncompiled if "torch._dynamo" in sys.modules else self._seen
        return seen(func, args, kwargs or {})

    def _seen(self, func, args, kwargs):
        if func.name() in OPDEFS:
            return self._within(func, args, kwargs)
        result = func(*args, **kwargs)
        self.done(func, args, kwargs, result)
        return result

    _seen_uncompiled = torch._disable_dynamo(_seen)

    def _within(self, func, args, kwargs):
        """Run a torch.library.custom_op with this mode switched on; torch switches it off inside.

        The operator's function is called directly, below autograd, as calling the operator would
        call this function again.
        """
        for key in (torch._C.DispatchKey.CompositeExplicitAutograd, _KEYS[self.device]):  # for all devices, or one
            if func.has_kernel_for_dispatch_key(key):
                with self:
                    return func._op_dk(key, *args, **kwargs)
        return func(*args, **kwargs)


@dataclass
class Storage:
    """A storage, its address, and a byte for each of its bytes: 1 if that was written."""

    alive: StorageWeakRef
    address: int
    written: Any  # an array of ctypes


@dataclass
class Fresh:
    """The storages of torch.empty in a traced call, by the identity that the weak reference keeps
    from being reused.
    """

    storages: dict[int, Storage] = field(default_factory=dict)
    most: int = 256  # storages that are kept before the freed ones are dropped
    nbytes: int = 0  # of the storages added since then

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if 0 < storage.nbytes() <= LARGEST:
            self.nbytes += storage.nbytes()
            if len(self.storages) >= self.most or self.nbytes > LARGEST:
                self.storages = {key: s for key, s in self.storages.items() if not s.alive.expired()}
                self.most, self.nbytes = max(self.most, 2 * len(self.storages)), 0
            written = (ctypes.c_ubyte * storage.nbytes())()
            self.storages[storage._cdata] = Storage(StorageWeakRef(storage), storage.data_ptr(), written)

    def wrote(self, tensor: torch.Tensor) -> None:
        """Count every byte from the tensor's first element to its last as written."""
        if tensor.layout != torch.strided or not tensor.numel():
            return
        if known := self.storages.get(tensor.untyped_storage()._cdata):
            width = tensor.element_size()
            start = tensor.storage_offset() * width
            span = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
            ctypes.memset(ctypes.addressof(known.written) + start, 1, span * width)

    def of(self, address: int, nbytes: int) -> Storage | None:
        """Return the storage that has exactly this memory, if it is alive."""
        for storage in self.storages.values():
            if storage.address == address and len(storage.written) == nbytes and not storage.alive.expired():
                return storage
        return None

    def begin(self, region: ctypes.c_void_p, address: int, nbytes: int) -> Storage | None:
        """Let the runtime check reads in a region against what was written so far."""
        storage = self.of(address, nbytes)
        if storage is not None:
            runtime().emulator_set_written(region, storage.written)
        return storage


class Following(OperatorsSeen):
    """Follows what PyTorch's operators in this block allocate and write."""

    def __init__(self, fresh: Fresh):
        super().__init__("cpu")
        self.fresh = fresh

    def done(self, func: Any, args: tuple, kwargs: dict, result: Any) -> None:
        if func in FRESH:
            if result.device.type == "cpu" and result.layout == torch.strided:
                self.fresh.add(result)
            return
        for number, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[number] if number < len(args) else kwargs.get(argument.name)
                for tensor in value if isinstance(value, (list, tuple)) else (value,):
                    if isinstance(tensor, torch.Tensor):
                        self.fresh.wrote(tensor)
