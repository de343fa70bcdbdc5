"""Turns the tensors that an implementation returned into plain ones, or says why they cannot be.

Laws compare, copy and write to outputs. Some kinds of tensors raise an error there, which would be
the implementation's, but would name the suite.
"""

from __future__ import annotations

import torch
from torch._C._functorch import is_functorch_wrapped_tensor  # private: torch has no public name for it

from flash_attest.impls.contract.record import ContractError

INFERENCE = (
    "is an inference tensor, which autograd does not save and optimizers cannot update: "
    "call kernels under torch.no_grad() instead of torch.inference_mode()"
)


def plain(name: str, tensor: torch.Tensor, *, trains: bool = False) -> torch.Tensor:
    """Return the same values as an ordinary torch.Tensor, still differentiable.

    The memory is the implementation's own, except where values are lazy (a negative bit, zeros that
    take no memory). trains: whether a backward is declared; inference tensors are then an error.

    Raises ContractError for a tensor that only the code that made it can use.
    """
    kind = type(tensor)
    if kind is not torch.Tensor:
        tensor = _without_class(name, tensor)
    elif tensor.__dict__:  # an attribute may hide a method: out.clone = None
        tensor = torch.ops.aten.alias.default(tensor)
    if is_functorch_wrapped_tensor(tensor):
        raise ContractError(
            f"{name} is a tensor of a torch.func transform (vmap, grad) that has ended: return what the transform returns"
        )
    if tensor.is_nested:
        raise ContractError(f"{name} is a nested tensor, should be a torch.Tensor with the shape of q")
    if tensor.layout is not torch.strided:
        raise ContractError(f"{name} has layout {tensor.layout}, should be torch.strided")
    if tensor.is_inference():
        if trains:
            raise ContractError(f"{name} {INFERENCE}")
        tensor = _usable(tensor)
    if tensor._is_zerotensor():
        tensor = tensor.clone()
    return tensor.resolve_conj().resolve_neg()


def problems_of(name: str, got: torch.Tensor, shape: tuple, dtype: torch.dtype, device: torch.device) -> list[str]:
    """Return what is wrong about a tensor: its shape, dtype, device, or memory."""
    problems = []
    if tuple(got.shape) != tuple(shape):
        problems.append(f"{name} has shape {tuple(got.shape)}, should be {tuple(shape)}")
    if got.dtype != dtype:
        problems.append(f"{name} has dtype {got.dtype}, should be {dtype}: convert it before returning")
    if got.device != device:
        problems.append(f"{name} is on {got.device}, should be on {device}")
    if not problems and (freed := _missing_memory(got)):
        problems.append(f"{name} {freed}")
    return problems


def _without_class(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without its subclass, which can change what comparisons return."""
    kind = type(tensor)
    if kind.__torch_dispatch__ != torch.Tensor.__torch_dispatch__:
        raise ContractError(
            f"{name} is a {kind.__name__}, whose __torch_dispatch__ is in the way: return a torch.Tensor"
        )
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.as_subclass(tensor, torch.Tensor)


def _usable(tensor: torch.Tensor) -> torch.Tensor:
    """Return an ordinary tensor of the same memory as an inference tensor."""
    ordinary = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return ordinary.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def _missing_memory(tensor: torch.Tensor) -> str:
    """Return that the tensor's storage ends before its last element; "" if it does not."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    has = tensor.untyped_storage().nbytes()
    if tensor.numel() == 0 or tensor.device.type == "meta" or has >= needed:
        return ""
    return f"has a storage of {has} bytes, should have {needed}: its memory was freed or resized"
