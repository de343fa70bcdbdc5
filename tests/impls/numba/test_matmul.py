"""The tiled matrix product accepts any sizes, dtypes and strides, and refuses other arguments."""

import pytest
import torch

from flash_attest.impls.numba.device import EMULATED, lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.numba.matmul import ROWS, SIDE, matmul

DEVICE = torch.device("cpu" if EMULATED else "cuda")
EPS = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def integers(*shape, dtype=torch.float32, seed=0):
    """Return small whole numbers, whose sums of products are exact in float32."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=generator).to(DEVICE, dtype)


SIZES = [
    (12, 34, 65),  # rows, products, columns: not multiples of any tile
    (1, 1, 1),
    (ROWS, SIDE, SIDE),  # exactly one tile
    (ROWS + 1, SIDE + 1, SIDE + 1),
    (2 * ROWS, 2 * SIDE + 4, SIDE + 4),  # wide loads, and a remainder of four
    (3, 0, 5),  # an empty sum
    (0, 3, 5),
    (3, 5, 0),
]


@pytest.mark.parametrize("m, k, n", SIZES)
def test_product_of_any_sizes(m, k, n):
    a, b = integers(m, k), integers(k, n, seed=1)
    assert torch.equal(matmul(a, b), a @ b)


@pytest.mark.parametrize("dtype", EPS, ids=str)
def test_sums_are_float32_for_every_dtype(dtype):
    """The only error of a 16-bit product is the last rounding, and torch rounds the same sum."""
    a, b = integers(20, 70, dtype=dtype), integers(70, 33, dtype=dtype, seed=1)
    assert torch.equal(matmul(a, b), (a.float() @ b.float()).to(dtype))


def test_error_is_that_of_float32_sums():
    """Each of k products is rounded once when it is added, which gives at most k roundings of sum
    |a| |b|.
    """
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(130, 130, generator=generator).to(DEVICE) for _ in "ab")
    error = (matmul(a, b).double() - a.double() @ b.double()).abs()
    assert (error <= 130 * EPS[torch.float32] * (a.double().abs() @ b.double().abs())).all()


@pytest.mark.parametrize("wide", (True, False), ids=("wide", "narrow"))
def test_any_strides(wide):
    """Rows may be spaced, transposed or repeated, with wide loads and without."""
    step = 4 if wide else 1
    memory = integers(40, 80)
    rows = memory[::2, 4 : 4 + 16 * step]  # (20, 16 or 64)
    for a in (rows, memory.t()[:20, : 16 * step], memory[:1, : 16 * step].expand(20, -1)):
        b = integers(a.shape[1], 8, seed=1)
        assert torch.equal(matmul(a, b), a @ b)


A, B = torch.zeros(3, 4, device=DEVICE), torch.zeros(4, 5, device=DEVICE)
REFUSED = {
    "no_tensor": (3, B, "a is a int: should be a tensor"),
    "three_dimensions": (A, B[None], r"b has shape \(1, 4, 5\): should have two dimensions"),
    "sizes": (A, A, r"a is \(3, 4\), b is \(3, 4\): a should have as many columns as b has rows"),
    "mixed": (A, B.half(), "a is torch.float32, b torch.float16: should be one of torch.float32, .*, the same"),
    "dtype": (A.double(), B.double(), "a is torch.float64, b torch.float64: should be one of torch.float32, "),
    "another_device": (A, B.to("meta"), f"a is on {DEVICE}.*, b is on meta: should be one device"),
    "meta": (A.to("meta"), B.to("meta"), f"a is on meta: should be on a {DEVICE.type.upper()} device"),
    "gradient": (A.clone().requires_grad_(), B, "a requires a gradient: should not, as this product has none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_does_not_support_is_refused(name):
    a, b, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        matmul(a, b)
