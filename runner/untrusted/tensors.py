"""Converts tensors to headers and bytes.

An input is given with the whole memory around it, its strides and its offset, so that laws about
layouts and margins keep their meaning. It lies in memory that both processes map (shared.py), at
the same address modulo a page, which preserves its alignment. On a GPU the kernel process copies
it. An output on a CPU is read where it lies (reading.py). Other outputs are sent: their values, and
the order of their dimensions in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from flash_attest.runner.untrusted.shared import MOST_ROOM, MOST_ROOMS, PAGE, Mapped
from flash_attest.runner.untrusted.wire import MOST_BLOCK, Garbled
from flash_attest.texts import gib

MOST_DIMENSIONS = 8


class TooLarge(ValueError):
    """A tensor that is too large to send."""


def differentiable(results: list) -> list[int]:
    """Return the positions of the tensors that require a gradient."""
    return [n for n, result in enumerate(results) if isinstance(result, torch.Tensor) and result.requires_grad]


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
            raise TooLarge(f"{name} lies in {gib(storage.nbytes(), 1)}, should be at most 4")
        address = storage.data_ptr()
        if address not in memories or not storage.nbytes():
            memories[address] = len(blocks)
            header["memories"].append({"address": address, "device": tensor.device.type, "size": storage.nbytes()})
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
    """The memory of inputs on a GPU, in the kernel process.

    While there is room, the same address on the judging side maps to the same address here, as
    shared.py does it on a CPU.
    """

    def __init__(self):
        self._rooms: dict[tuple, torch.Tensor] = {}  # the least recently used first

    def place(self, block: torch.Tensor, address: int, device: str) -> torch.Tensor:
        """Copy a block to memory with the same address modulo a page."""
        key = (address, block.numel(), device)
        room = self._rooms.pop(key, None)
        if room is None:
            whole = torch.empty(block.numel() + PAGE, dtype=torch.uint8, device=device)
            room = whole.narrow(0, (address - whole.data_ptr()) % PAGE, block.numel())
        self._rooms[key] = room
        while len(self._rooms) > MOST_ROOMS or sum(each.numel() for each in self._rooms.values()) > MOST_ROOM:
            del self._rooms[next(iter(self._rooms))]
        return room.copy_(block)


def unpack(header: dict, mapped: Mapped, rooms: Rooms) -> dict[str, torch.Tensor]:
    """Return the inputs of a call by name, given the header of `pack` with offsets into memory that
    is shared.

    Only the kernel process calls this, with data from the judging side.
    """
    memories = []
    for memory in header["memories"]:
        block = mapped.block(memory["offset"], memory["size"], header["shared"])
        if memory["device"] != "cpu":
            empty = torch.empty(0, dtype=torch.uint8, device=memory["device"])
            block = rooms.place(block, memory["address"], memory["device"]) if memory["size"] else empty
        memories.append(block)
    tensors = {}
    for name, spec in header["tensors"].items():
        whole, dtype = memories[spec["memory"]], getattr(torch, spec["dtype"])
        usable = whole[: whole.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        tensor = usable.as_strided(spec["shape"], spec["strides"], usable.storage_offset() + spec["offset"])
        tensors[name] = tensor.detach().requires_grad_(spec["requires_grad"])
    return tensors


# --- outputs --------------------------------------------------------------------------------------


def described(tensor: torch.Tensor) -> dict:
    """Return where an output on a CPU lies. It must live until it has been read for the last
    time.
    """
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "address": tensor.data_ptr(),
        "device": "cpu",
        "requires_grad": tensor.requires_grad,
    }


def taken(header: dict, read: Callable[[int, int], torch.Tensor]) -> torch.Tensor:
    """Return a copy of the output that `described` describes. read(address, size) returns bytes.

    Raises Garbled, because the kernel process may send anything.
    """
    dtype, shape = _form(header)
    strides, address = header.get("strides"), header.get("address")
    if not _are_sizes(strides) or len(strides) != len(shape) or type(address) is not int or not 0 <= address < 1 << 64:
        raise Garbled(f"an output of shape {shape}, with strides {str(strides)[:80]}, at {str(address)[:80]}")
    numel = math.prod(shape)
    extent = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) if numel else 0
    if max(numel, extent) * dtype.itemsize > MOST_BLOCK:
        raise Garbled(f"an output of shape {shape} and dtype {dtype} in {extent} elements, which is too large")
    if not numel:
        return torch.empty(shape, dtype=dtype)
    tensor = read(address, extent * dtype.itemsize).view(dtype).as_strided(shape, strides)
    dense = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    return tensor if tensor.permute(dense).is_contiguous() else tensor.contiguous()


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
    dtype, shape = _form(header)
    order, device = header.get("order"), header.get("device")
    if device not in ("cpu", "cuda") or not isinstance(order, list):
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


def _form(header: dict) -> tuple[torch.dtype, list[int]]:
    """Return the dtype and the shape of an output."""
    dtype, shape = header.get("dtype"), header.get("shape")
    dtype = getattr(torch, dtype, dtype) if isinstance(dtype, str) else dtype
    if not isinstance(dtype, torch.dtype) or not _are_sizes(shape):
        raise Garbled(f"an output of dtype {str(dtype)[:80]}, shape {str(shape)[:80]}")
    return dtype, shape


def _are_sizes(values: object) -> bool:
    return (
        isinstance(values, list) and len(values) <= MOST_DIMENSIONS and all(type(n) is int and n >= 0 for n in values)
    )
