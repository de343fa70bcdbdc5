"""A module in the style of packages for GPUs. It asks torch.cuda at import and before each launch,
and uses autotuning and autograd.
"""

import torch
import triton
import triton.language as tl

if not torch.cuda.is_available():
    raise RuntimeError("no CUDA device found")
AMPERE = torch.cuda.get_device_capability() >= (8, 0) and torch.version.cuda is not None
PROGRAMS = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


@triton.autotune(configs=[triton.Config({"BLOCK": n}, num_warps=w) for n in (64, 128) for w in (2, 4)], key=["n"])
@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    for first in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = first + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) * tl.load(factor), mask=i < n)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return launched(x, factor)

    @staticmethod
    def backward(ctx, gradient):
        return launched(gradient, ctx.factor), None


def launched(x, factor):
    assert x.is_cuda and AMPERE, "x should be on a GPU"
    out = torch.empty(x.shape, dtype=x.dtype, device=torch.device("cuda", x.get_device()))
    with torch.cuda.device(x.device.index), torch.cuda.stream(torch.cuda.current_stream()):
        factor = torch.tensor([factor], dtype=x.dtype).to("cuda", non_blocking=True)
        scale_kernel[(PROGRAMS,)](x.contiguous(), out, factor.cuda(), x.numel())
    torch.cuda.synchronize()
    return out


def scale(x, factor):
    """Compute x * factor."""
    return Scale.apply(x, factor)
