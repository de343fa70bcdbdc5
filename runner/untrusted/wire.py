"""Messages between the two processes: a header in JSON, then blocks of bytes.

The header names the lengths of the blocks. Reading JSON runs no code of the sender. Every length is
checked before memory is allocated for it.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Sequence

import torch

HEAD = 8  # bytes of the length of a header
MOST_HEADER = 4 << 20  # bytes
MOST_BLOCK = 4 << 30
MOST_BLOCKS = 16
PART = 1 << 24  # bytes that are read or written at once


class Garbled(ValueError):
    """The bytes that arrived are not a message."""


class Closed(EOFError):
    """The other side has closed the connection."""


def send(pipe: int, header: dict, blocks: Sequence[torch.Tensor] = ()) -> None:
    """Write a message. blocks: uint8 tensors on the CPU, contiguous."""
    data = json.dumps({**header, "blocks": [block.numel() for block in blocks]}).encode()
    _write(pipe, memoryview(len(data).to_bytes(HEAD, "little") + data))
    for block in blocks:
        _write(pipe, view(block))


def receive(pipe: int, wait: Callable[[], None] = lambda: None) -> tuple[dict, list[torch.Tensor]]:
    """Return the next message. wait() returns when there is something to read, or raises.

    Raises Garbled if the bytes are not a message, or Closed at the end.
    """
    length = int.from_bytes(_read(pipe, HEAD, wait), "little")
    if length > MOST_HEADER:
        raise Garbled(f"a header of {length} bytes")
    try:
        header = json.loads(bytes(_read(pipe, length, wait)))
    except (ValueError, RecursionError) as error:
        raise Garbled(f"a header that is no JSON ({type(error).__name__})") from None
    lengths = header.get("blocks") if isinstance(header, dict) else None
    if not isinstance(lengths, list) or len(lengths) > MOST_BLOCKS or not all(map(_is_length, lengths)):
        raise Garbled("a header without lengths")
    return header, [_block(pipe, n, wait) for n in lengths]


def view(block: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous uint8 tensor on the CPU, without a copy."""
    if not block.numel():
        return memoryview(b"")
    return memoryview((ctypes.c_char * block.numel()).from_address(block.data_ptr())).cast("B")


def _is_length(n: object) -> bool:
    return type(n) is int and 0 <= n <= MOST_BLOCK


def _block(pipe: int, n: int, wait: Callable[[], None]) -> torch.Tensor:
    block = torch.empty(n, dtype=torch.uint8)
    _fill(pipe, view(block), wait)
    return block


def _read(pipe: int, n: int, wait: Callable[[], None]) -> bytearray:
    data = bytearray(n)
    _fill(pipe, memoryview(data), wait)
    return data


def _fill(pipe: int, data: memoryview, wait: Callable[[], None]) -> None:
    while len(data):
        wait()
        n = os.readv(pipe, [data[:PART]])
        if n == 0:
            raise Closed
        data = data[n:]


def _write(pipe: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(pipe, data[:PART]) :]
