"""A kernel behind an autograd.Function, in modules that are moved to the GPU, under autocast and
with CUDA's random numbers.
"""

import copy

import pytest
import torch
import triton
import triton.language as tl

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)


@triton.jit
def forward_kernel(x, y, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + i, mask=i < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * columns + i, e / tl.sum(e, 0), mask=i < columns)


@triton.jit
def backward_kernel(y, dy, dx, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + i
    p = tl.load(y + at, mask=i < columns, other=0.0).to(tl.float32)
    g = tl.load(dy + at, mask=i < columns, other=0.0).to(tl.float32)
    tl.store(dx + at, p * (g - tl.sum(p * g, 0)), mask=i < columns)


class Softmax(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        assert x.is_cuda and x.is_contiguous()
        y = torch.empty_like(x)
        with torch.cuda.device(x.device.index):
            forward_kernel[(x.shape[0],)](x, y, x.shape[1], triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        assert dy.is_cuda and dy.device == y.device
        dx = torch.empty_like(y)
        backward_kernel[(y.shape[0],)](y, dy.contiguous(), dx, y.shape[1], triton.next_power_of_2(y.shape[1]))
        return dx


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x):
        return Softmax.apply(self.linear(x) * self.scale)


@pytest.fixture
def device():
    assert torch.cuda.get_device_capability() >= (8, 0)
    torch.cuda.manual_seed_all(0)
    return torch.device("cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_forward_and_backward(device, dtype):
    x = torch.randn(
        5, 37, device=device, dtype=dtype, generator=torch.Generator(device).manual_seed(1), requires_grad=True
    )
    dy = torch.randn_like(x)
    got, want = Softmax.apply(x), torch.softmax(x, -1)
    torch.testing.assert_close(got, want)
    got_dx, want_dx = (torch.autograd.grad(y, x, dy)[0] for y in (got, want))
    assert got_dx.is_cuda
    torch.testing.assert_close(got_dx, want_dx)


@pytest.mark.parametrize("move", [lambda m: m.cuda(), lambda m: m.to("cuda"), lambda m: m.to(torch.device("cuda:0"))])
def test_modules(device, move):
    model = Model(16)
    assert not any(p.is_cuda for p in model.parameters())
    model = move(model)
    assert all(x.is_cuda for x in (*model.parameters(), *model.buffers()))
    twin = copy.deepcopy(model)
    twin.load_state_dict(model.state_dict())
    x = torch.randn(3, 16, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cuda") and (x @ x.T).dtype == torch.bfloat16
        out = model(x)
    torch.testing.assert_close(out, twin(x), atol=1e-2, rtol=1e-2)
    assert not torch.equal(out, twin(x))  # autocast rounded it
    out.sum().backward()
    assert next(model.parameters()).grad.is_cuda


def test_the_default_device(device):
    with torch.device("cuda"):
        assert torch.randn(2).is_cuda and torch.nn.Linear(2, 2).weight.is_cuda and torch.arange(3).device.type == "cuda"
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(2).is_cuda and torch.get_default_device().type == "cuda"
    finally:
        torch.set_default_device(None)
    assert not torch.zeros(2).is_cuda
