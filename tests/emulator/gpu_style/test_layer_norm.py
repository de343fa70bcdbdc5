"""Uses operators that are registered for CUDA only, and the answers of torch.cuda that decide which
tests are skipped.
"""

import pytest
import torch
import triton
import triton.language as tl

hopper = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 9, reason="needs Hopper"
)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
pytestmark = needs_gpu


@triton.autotune(configs=[triton.Config({"ROWS": n}, num_warps=4) for n in (1, 2)], key=["rows", "columns"])
@triton.jit
def layer_norm_kernel(x, weight, out, rows, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    at = i[:, None] * columns + j[None, :]
    there = (i[:, None] < rows) & (j[None, :] < columns)
    values = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    centred = tl.where(there, values - (tl.sum(values, 1) / columns)[:, None], 0.0)
    scaled = centred * tl.rsqrt(tl.sum(centred * centred, 1) / columns + eps)[:, None]
    tl.store(out + at, scaled * tl.load(weight + j, mask=j < columns, other=0.0)[None, :], mask=there)


def launched(x, weight, eps):
    assert x.device.type == "cuda"
    out = torch.empty_like(x)
    rows, columns = x.shape
    layer_norm_kernel[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](
        x, weight, out, rows, columns, eps, BLOCK=triton.next_power_of_2(columns)
    )
    return out


@torch.library.custom_op("gpu_style::layer_norm", mutates_args=(), device_types="cuda")
def layer_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return launched(x, weight, eps)


@layer_norm.register_fake
def _(x, weight, eps):
    return torch.empty_like(x)


@torch.library.custom_op("gpu_style::layer_norm_of_both", mutates_args=(), device_types="cpu")
def layer_norm_of_both(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    raise RuntimeError("this is the CPU's kernel")


layer_norm_of_both.register_kernel("cuda")(launched)
library = torch.library.Library("gpu_style_library", "DEF")
library.define("layer_norm(Tensor x, Tensor weight, float eps) -> Tensor")
library.impl("layer_norm", launched, "CUDA")


@torch.library.custom_op("gpu_style::filled", mutates_args=(), device_types="cuda")
def filled(size: int, device: torch.device) -> torch.Tensor:
    return torch.full((size,), 7.0, device=device)


@pytest.mark.parametrize(
    "function", [layer_norm, layer_norm_of_both, torch.ops.gpu_style_library.layer_norm, torch.ops.gpu_style.layer_norm]
)
@pytest.mark.parametrize("columns", [33, 128])
def test_layer_norm(function, columns):
    torch.manual_seed(0)
    x, weight = torch.randn(7, columns, device="cuda"), torch.randn(columns).cuda()
    want = torch.nn.functional.layer_norm(x, (columns,), weight, None, 1e-5)
    torch.testing.assert_close(function(x, weight, 1e-5), want, atol=1e-5, rtol=1e-5)


def test_opcheck():
    x, weight = torch.randn(4, 32, device="cuda"), torch.ones(32, device="cuda")
    torch.library.opcheck(layer_norm, (x, weight, 1e-5), test_utils=("test_schema", "test_faketensor"))


def test_an_operator_that_takes_no_tensor():
    assert filled(3, torch.device("cuda")).tolist() == [7, 7, 7]


@hopper
def test_tma():
    raise AssertionError("sm_80 has none")


def test_torch_compile_runs_it():
    compiled = torch.compile(lambda x, weight: layer_norm(x, weight, 1e-5) * 2)
    x, weight = torch.randn(4, 32, device="cuda"), torch.ones(32, device="cuda")
    torch.testing.assert_close(compiled(x, weight), layer_norm(x, weight, 1e-5) * 2)
