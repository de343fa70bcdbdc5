"""The memory layouts that real models use, in buffers whose surroundings the suite controls.

Every layout is cut out of a buffer with a margin before and after it. Some layouts also have gaps
between rows. The suite fills margins and gaps with a value and checks afterwards that it is
unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch

from flash_attest.impls.contract.tensors import TABLES, contiguous
from flash_attest.races.bits import bits

MARGIN = 256  # elements before and after; a multiple of 16 bytes in every dtype, so torch's alignment is kept
GAP = 24  # elements behind each row of `gapped`; with 16, rows of 8 would be as far apart as `interleaved` ones

# Inputs that are contiguous in every layout.
DENSE = ("sinks", "dlse", "block_mask", "kv_indices", "out_parts", "lse_parts", *TABLES)

# Any two of q, k, v and dout differ in each of their first three strides.
MIXED = {"q": "transposed", "k": "gapped", "v": "interleaved", "dout": "sliced", "bias": "gapped",
         "k_new": "interleaved", "v_new": "transposed"}  # fmt: skip

# The stride of a dimension of size 1, by the input. Those of others are 16.
ODD = {"q": 16, "k": 48, "v": 80, "dout": 112}

UNALIGNED = ("offset", "odd_rows")  # some addresses are not multiples of 16 bytes


@dataclass(frozen=True)
class Placed:
    """A tensor inside its buffer."""

    tensor: torch.Tensor
    buffer: torch.Tensor
    after: torch.Tensor  # the buffer's bits that the call should leave: those before it, with any new keys

    def written(self) -> int:
        """Return how many elements are not as the call should leave them.

        Margins and gaps count, too.
        """
        return int((bits(self.buffer) != self.after).sum())

    def changed(self) -> torch.Tensor:
        """Return which elements of the tensor are not as the call should leave them."""
        return self._in_place(bits(self.buffer) != self.after)

    def left(self) -> torch.Tensor:
        """Return the values that the call should leave in the tensor."""
        return self._in_place(self.after.view(self.buffer.dtype))

    def _in_place(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the elements of a copy of the buffer that belong to the tensor."""
        begin = self.tensor.storage_offset() - self.buffer.storage_offset()
        return buffer.as_strided(self.tensor.shape, self.tensor.stride(), begin)


def lay_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """Store the values of a contiguous 4-D tensor in this layout.

    "contiguous" returns the tensor itself.
    """
    if layout == "contiguous":
        return tensor
    return place(tensor, layout, fill=0.0).tensor


def layout_of(name: str, layout: str) -> str:
    """Return the layout of one input.

    With "mixed" each input has a different layout, so that using the strides of another tensor
    shows. With "size_one" dimensions of size 1 have a different stride in each.
    """
    if name in DENSE:
        return "contiguous"
    if layout == "size_one":
        return f"size_one_{ODD.get(name, 16)}"
    return MIXED[name] if layout == "mixed" else layout


def place(
    tensor: torch.Tensor, layout: str, fill: float, margin: int = MARGIN, away_from: torch.Tensor | None = None
) -> Placed:
    """Store the values of a tensor (w, x, y, z) in this layout, surrounded by `fill`.

    A tensor of fewer dimensions is stored as if its first ones had size 1; one of more dimensions
    is contiguous.

    margin: the least number of elements before and after.
    away_from: a tensor whose address must differ modulo 128; torch aligns to 64 bytes.

    contiguous    as torch makes it
    transposed    the two middle dimensions are exchanged in memory
    packed        every third row of a longer tensor, like q in a packed qkv
    gapped        rows longer than z, the rest unused
    sliced        the beginning of both middle dimensions, like k[:, :n] of a cache, or some heads
    last_strided  the last dimension has stride 2
    offset        contiguous, but one element after a multiple of 16 bytes
    odd_rows      rows one element longer than z, so rows begin at every remainder by 16 bytes
    size_one      contiguous, and dimensions of size 1 have the stride 16 or 32, which is not used;
                  size_one_48 and so on have another number;
                  in other layouts a contiguous tensor has the strides of a new one
    interleaved   every third of (x, y, 3, z), like v in a qkv that is packed head by head
    """
    *more, x, y, z = (1,) * (4 - tensor.dim()) + tuple(tensor.shape)
    w = math.prod(more)
    stored, cut = {
        "contiguous": ((w, x, y, z), lambda t: t),
        "transposed": ((w, y, x, z), lambda t: t.transpose(1, 2)),
        "packed": ((w, x, 3, y, z), lambda t: t[:, :, 1]),
        "gapped": ((w, x, y, z + GAP), lambda t: t[..., :z]),
        "sliced": ((w, x + 3, y + 2, z), lambda t: t[:, :x, :y]),
        "last_strided": ((w, x, y, 2 * z), lambda t: t[..., ::2]),
        "offset": ((w, x, y, z), lambda t: t),
        "odd_rows": ((w, x, y, z + 1), lambda t: t[..., :z]),
        "size_one": ((w, x, y, z), _with_odd_strides),
        **{f"size_one_{odd}": ((w, x, y, z), partial(_with_odd_strides, odd=odd)) for odd in ODD.values()},
        "interleaved": ((w, x, y, 3, z), lambda t: t[:, :, :, 1]),
    }[layout]
    count = math.prod(stored)
    before = margin + (layout == "offset")
    # NaN and 7 differ, as laws compare the two. Around a table, each is a page or a length.
    if tensor.dtype == torch.bool:
        fill = fill == fill and fill != 0
    elif not tensor.is_floating_point():
        fill = int(fill != fill)
    spare = 0 if away_from is None else 64 // tensor.element_size()
    buffer = torch.full((before + count + margin + spare,), fill, dtype=tensor.dtype, device=tensor.device)
    view = cut(buffer[before:][:count].view(stored))
    if away_from is not None and (view.data_ptr() - away_from.data_ptr()) % 128 == 0:
        view = cut(buffer[before + spare :][:count].view(stored))
    view = view[(0,) * (4 - tensor.dim())]
    if not layout.startswith("size_one") and view.is_contiguous():
        view = contiguous(view.view(tensor.shape))
    view.copy_(tensor)
    return Placed(tensor=view, buffer=buffer, after=bits(buffer).clone())


def _with_odd_strides(tensor: torch.Tensor, odd: int = 16) -> torch.Tensor:
    """Return a view of a contiguous tensor, in which dimensions of size 1 have another stride.

    The last dimension keeps its stride of 1, which kernels that load vectors ask for.
    """
    strides = [
        stride if size != 1 else odd if stride != odd else 2 * odd
        for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
    ]
    return tensor.as_strided(tensor.shape, (*strides, tensor.stride(-1)))
