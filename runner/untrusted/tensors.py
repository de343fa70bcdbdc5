"""Converts tensors to headers and bytes.

An input is sent with the whole memory around it, its strides and its offset, so that laws about
layouts and margins keep their meaning. The copy has the same address modulo a page, which preserves
its alignment. An output is sent as its values and the order of its dimensions in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from flash_attest.runner.untrusted.wire import MOST_BLOCK, Garbled

PAGE = 4096
MOST_DIMENSIONS = 8
MOST_ROOMS, MOST_ROOM = 32, 1 << 30  # memories and bytes that the kernel process keeps for the next call


class TooLarge(ValueError):
    """A tensor that is too large to send."""


# --- inputs: whole memories -----------------------------------------------------------------------


def pack(tensors: dict[str, torch.Tensor]) -> tuple[dict, list[torch.Tensor]]:
    """Convert inputs to a header and a block for each memory that contains them. Raises
    TooLarge.
    """
    memories: dict[int, int] = {}  # address -> number of the block
    header, blocks = {"memories": [], "tensors": {}}, []
    for name, tensor in tensors.items():
        storage = tensor.detach().untyped_storage()
        if storage.nbytes() > MOST_BLOCK:
            raise TooLarge(f"{name} lies in {storage.nbytes() / 2**30:.1f} GiB, should be at most 4")
        address = storage.data_ptr()
        if address not in memories or not storage.nbytes():
            memories[address] = len(blocks)
            header["memories"].append({"address": address, "device": tensor.device.type})
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            blocks.append(whole.cpu())
        header["tensors"][name] = {
            "memory": memories[address],
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "offset": tensor.storage_offset(),
            "requires_grad": tensor.requires_grad,
        }
    return header, blocks


class Rooms:
    """The memory of inputs in the kernel process.

    While there is room, the same address on the judging side maps to the same address here. So a
    kernel that caches results by address finds new values at the same address, as it would in the
    judging process.
    """

    def __init__(self):
        self._rooms: dict[tuple, torch.Tensor] = {}  # the least recently used first

    def place(self, block: torch.Tensor, address: int, device: str) -> torch.Tensor:
        """Copy a block to memory with the same address modulo a page."""
        if not block.numel():  # all empty tensors have the same address
            return torch.empty(0, dtype=torch.uint8, device=device)
        key = (address, block.numel(), device)
        room = self._rooms.pop(key, None)
        if room is None:
            whole = torch.empty(block.numel() + PAGE, dtype=torch.uint8, device=device)
            room = whole.narrow(0, (address - whole.data_ptr()) % PAGE, block.numel())
        self._rooms[key] = room
        while len(self._rooms) > MOST_ROOMS or sum(each.numel() for each in self._rooms.values()) > MOST_ROOM:
            del self._rooms[next(iter(self._rooms))]
        return room.copy_(block)


def unpack(
    header: dict, blocks: Sequence[torch.Tensor], rooms: Rooms
) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """Convert the result of `pack` to tensors by name, and the memories that contain them.

    Only the kernel process calls this, with data from the judging side.
    """
    memories = [rooms.place(block, **memory) for block, memory in zip(blocks, header["memories"], strict=True)]
    tensors = {}
    for name, spec in header["tensors"].items():
        whole, dtype = memories[spec["memory"]], getattr(torch, spec["dtype"])
        usable = whole[: whole.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        tensor = usable.as_strided(spec["shape"], spec["strides"], usable.storage_offset() + spec["offset"])
        tensors[name] = tensor.detach().requires_grad_(spec["requires_grad"])
    return tensors, memories


# --- outputs: values ------------------------------------------------------------------------------


def pack_values(tensor: torch.Tensor) -> tuple[dict, torch.Tensor]:
    """Convert an output to a header and its bytes, in memory order if it is dense.

    Raises TooLarge.
    """
    requires_grad, tensor = tensor.requires_grad, tensor.detach().resolve_conj().resolve_neg()
    if tensor.numel() * tensor.itemsize > MOST_BLOCK:
        raise TooLarge(f"an output of shape {tuple(tensor.shape)} and dtype {tensor.dtype} is too large to send")
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
    if not tensor.permute(order).is_contiguous():
        order = list(range(tensor.dim()))
    dense = tensor.permute(order).contiguous()
    header = {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(dense.shape),
        "order": order,
        "device": tensor.device.type,
        "requires_grad": requires_grad,
    }
    return header, dense.reshape(-1).view(torch.uint8).cpu()


def unpack_values(header: dict, block: torch.Tensor) -> torch.Tensor:
    """Convert the result of `pack_values` to a tensor on the device that it names.

    Raises Garbled, because the kernel process may send anything.
    """
    try:
        dtype, shape, order, device = (header[key] for key in ("dtype", "shape", "order", "device"))
        dtype = getattr(torch, dtype)
    except (KeyError, TypeError, AttributeError):
        raise Garbled("an output without dtype, shape, order and device") from None
    valid_shape = (
        isinstance(shape, list) and len(shape) <= MOST_DIMENSIONS and all(type(n) is int and n >= 0 for n in shape)
    )
    if not (isinstance(dtype, torch.dtype) and valid_shape and device in ("cpu", "cuda") and isinstance(order, list)):
        raise Garbled(f"an output of dtype {dtype}, shape {shape}, on {device}")
    if not all(type(n) is int for n in order) or sorted(order) != list(range(len(shape))):
        raise Garbled(f"an output with dimensions in the order {order}")
    if block.numel() != math.prod(shape) * dtype.itemsize:
        raise Garbled(f"{block.numel()} bytes for an output of shape {shape} and dtype {dtype}")
    if device == "cuda" and not torch.cuda.is_available():
        raise Garbled("an output on a GPU, of which there is none")
    dense = block.view(dtype) if block.numel() else torch.empty(0, dtype=dtype)
    inverse = [order.index(dim) for dim in range(len(order))]
    return dense.view(shape).to(device).permute(inverse)
