"""Tensor maps: the 128 bytes that describe a tensor to bulk copies (CUDA driver API,
cuTensorMapEncodeTiled).

NVIDIA does not document the layout of the bytes. These are the fields that encoders of CUDA
write for tiles without interleaving; machine/bulk.cpp reads them and refuses others.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch

BYTES = 128
# Bytes of an element, by CUtensorMapDataType.
ELEMENTS = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)
# The number of an element type in the bytes, where it differs from CUtensorMapDataType: float64,
# bfloat16, and float32 whose subnormal numbers count as 0. As seen in maps of CuTe DSL.
IN_BYTES = {8: 9, 9: 10, 10: 8}
SWIZZLES = ("none", "32B", "64B", "128B")
TILED = 2
LARGEST_BOX = 256  # elements in each dimension


@dataclass(frozen=True)
class TensorMap:
    """A parameter of a kernel that describes a tensor of 1 to 5 dimensions, innermost first.

    type: a CUtensorMapDataType. extents, box: in elements. strides: in bytes, of all dimensions but
    the innermost. swizzle: a number of SWIZZLES. tensor: the memory, whose address is the map's.
    Raises ValueError for what a GPU would not accept.
    """

    tensor: torch.Tensor
    type: int
    extents: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    swizzle: int = 0

    def __post_init__(self) -> None:
        rank = len(self.extents)
        if not 0 <= self.type < len(ELEMENTS):
            raise ValueError(f"type={self.type}: should be a CUtensorMapDataType from 0 to {len(ELEMENTS) - 1}")
        if not 1 <= rank <= 5 or len(self.strides) != rank - 1 or len(self.box) != rank:
            raise ValueError(
                f"extents {self.extents}, strides {self.strides}, box {self.box}: should be 1 to 5 dimensions"
            )
        if any(not 0 < size <= LARGEST_BOX for size in self.box):
            raise ValueError(f"box={tuple(self.box)}: each size should be 1 to {LARGEST_BOX}")
        if any(not 0 < size <= 2**32 for size in self.extents):
            raise ValueError(f"extents={tuple(self.extents)}: each should be 1 to 2**32")
        if any(stride % 16 or not 0 <= stride < 2**36 for stride in self.strides):
            raise ValueError(f"strides={tuple(self.strides)}: each should be a multiple of 16 bytes, below 2**36")
        width = self.box[0] * ELEMENTS[self.type]
        if width % 16:
            raise ValueError(
                f"box={tuple(self.box)}: its innermost dimension has {width} bytes, should be a multiple of 16"
            )
        if self.swizzle and width > 16 << self.swizzle:
            most = 16 << self.swizzle
            raise ValueError(
                f"box={tuple(self.box)}: {width} bytes in a line, swizzle {SWIZZLES[self.swizzle]} has {most}"
            )

    def encoded(self, address: int) -> bytes:
        """Return the bytes for memory at an address. Raises ValueError if it is not aligned."""
        if address % 16:
            raise ValueError(f"the tensor's address should be a multiple of 16, is {address % 16} more")
        head = TILED | (len(self.extents) - 1) << 4 | IN_BYTES.get(self.type, self.type) << 7 | self.swizzle << 13
        data = bytearray(BYTES)
        struct.pack_into("<QI", data, 0, address, head)
        for i, stride in enumerate(self.strides):
            struct.pack_into("<I", data, 12 + 4 * i, stride // 16)
        for i, (extent, size) in enumerate(zip(self.extents, self.box, strict=True)):
            struct.pack_into("<I", data, 32 + 4 * i, extent - 1)
            data[55 + i] = size - 1
        return bytes(data)
