"""Elements of 16 bits: reads are exact, and writes round to nearest, ties to even, as in torch."""

import pytest
import torch

from flash_attest.impls.numba.device import EMULATED, lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from numba import cuda

from flash_attest.impls.numba.elements import from_float, to_float
from flash_attest.impls.numba.launch import launch
from flash_attest.impls.numba.tiles import THREADS

DEVICE = torch.device("cpu" if EMULATED else "cuda")
DTYPES = (torch.bfloat16, torch.float16)


@cuda.jit
def convert(x, widened, rounded, y):
    """Store x in float32 in `widened`, and y rounded to the dtype of x in `rounded`."""
    i = cuda.grid(1)
    if i < x.size:
        widened[i] = to_float(x[i])
    if i < y.size:
        y[i] = from_float(rounded[i], y)


def converted(x: torch.Tensor, floats: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x in float32, and floats in the dtype of x."""
    widened, y = torch.empty_like(x, dtype=torch.float32), torch.empty_like(floats, dtype=x.dtype)
    launch(convert, -(-max(len(x), len(floats)) // THREADS), 0, x, widened, floats, y)
    return widened, y


def bits(x: torch.Tensor) -> torch.Tensor:
    """Return the bits, with one pattern for all NaN."""
    return torch.where(x.isnan(), 0x7FFF, x.view(torch.int16 if x.itemsize == 2 else torch.int32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conversions_are_those_of_torch(dtype):
    """All 65536 bit patterns are read. Floats of all magnitudes are written, at and near the middle
    between neighbours.
    """
    x = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype).to(DEVICE)
    dropped = 16 if dtype == torch.bfloat16 else 13  # bits of float32
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(-(2**31), 2**31, (4096,), generator=generator)
    half = (random >> dropped << dropped) + (1 << dropped - 1)
    floats = torch.cat([random, half, half - 1, half + 1]).to(torch.int32).view(torch.float32).to(DEVICE)
    ends = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.4e38, 65519.0, 65520.0, 1e-45, 2.0**-25])
    floats = torch.cat([floats, ends.to(DEVICE)])

    widened, rounded = converted(x, floats)

    assert torch.equal(bits(widened), bits(x.float()))
    assert torch.equal(bits(rounded), bits(floats.to(dtype)))
