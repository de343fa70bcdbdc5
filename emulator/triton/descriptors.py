"""The parameters of a TensorDescriptor in the PTX: a tensor map for sm_90, or a pointer with sizes
for sm_80.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

from flash_attest.emulator.errors import NotCovered
from flash_attest.emulator.ptx.tensor_map import TensorMap

# CUtensorMapDataType for Triton's number of an element type, if they differ.
ELEMENT_TYPES = {8: 10, 9: 8, 10: 9}


def descriptor(name: str, type_: str, value: Any, layout: dict | None) -> Iterator[tuple[str, Any]]:
    """Yield (name, argument) for each parameter.

    layout: an entry of the compilation's metadata, tensordesc_meta, if the kernel reads the tensor
    by TMA; None if it reads it through a pointer. Raises NotCovered.
    """
    rank = re.match(r"tensordesc(?:_im2col)?<[^\[>]*\[([^\]]*)\]", type_)[1].count(",") + 1
    if len(value.shape) != rank:
        raise NotCovered(f"{name} has the type {type_} and the shape {tuple(value.shape)}: not covered on the CPU")
    yield from _by_pointer(name, value) if layout is None else [(name, _map(name, value, layout))]
    yield from ((f"{name}.shape[{i}]", struct.pack("<i", n)) for i, n in enumerate(value.shape))
    yield from ((f"{name}.strides[{i}]", struct.pack("<q", n)) for i, n in enumerate(value.strides))


def _by_pointer(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what precedes shape and strides, which Triton passes twice."""
    from flash_attest.emulator.triton.launcher import pointed_to  # which imports this file

    yield f"{name}.base", pointed_to(value.base)
    for what, numbers in (("shape", value.shape), ("strides", value.strides)):
        yield from ((f"{name}.{what}[{i}]", struct.pack("<q", n)) for i, n in enumerate(numbers))
    yield f"{name}.nan", struct.pack("<b", value.padding == "nan")
    if hasattr(value, "round_f32_to_tf32"):
        yield f"{name}.tf32", struct.pack("<b", value.round_f32_to_tf32)


def _map(name: str, value: Any, layout: dict) -> TensorMap:
    for wrong, is_wrong in (
        ('padding="nan"', value.padding == "nan"),
        ("round_f32_to_tf32=True", getattr(value, "round_f32_to_tf32", False)),
        ("fp4 elements", layout.get("fp4_padded")),
    ):
        if is_wrong:
            raise NotCovered(f"{name}: a tensor descriptor with {wrong} is not covered on the CPU")
    size = layout["elem_size"]
    type_ = ELEMENT_TYPES.get(layout["elem_type"], layout["elem_type"])
    # Triton lists dimensions outermost first, a map innermost first.
    strides = [stride * size for stride in value.strides[-2::-1]]
    try:
        return TensorMap(value.base, type_, value.shape[::-1], strides, layout["block_size"][::-1], layout["swizzle"])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
