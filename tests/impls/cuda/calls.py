"""Calls of flash_attention_1 and _2, made as a model makes them: devices, inputs, gradients."""

import pytest
import torch

from flash_attest.impls.cuda import extension, flash_attention_1, flash_attention_2
from tests.impls.cuda.values import randn

LEFT, RIGHT = "top_left", "bottom_right"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
CUDA = torch.cuda.is_available() and extension.nvcc() is not None
DEVICES = ("cpu", "cuda") if CUDA else ("cpu",)
on_a_gpu = pytest.mark.skipif(not CUDA, reason="needs a GPU, and nvcc")
each = pytest.mark.parametrize("function", (flash_attention_1, flash_attention_2), ids=("fa1", "fa2"))
everywhere = pytest.mark.parametrize("device", DEVICES)


def inputs(device, seqlen_q=20, seqlen_k=37, headdim=16, dtype=F32, bias=(1, 4, 20, 37)):
    """Return q, k, v and a bias of this shape (or None), all leaves. There are 4 query heads and 2
    key heads.
    """
    of_q, of_k = (2, seqlen_q, 4, headdim), (2, seqlen_k, 2, headdim)
    tensors = [randn(*shape, device=device, dtype=dtype, seed=n) for n, shape in enumerate((of_q, of_k, of_k))]
    tensors.append(None if bias is None else randn(*bias, device=device, seed=3))
    return [x if x is None else x.requires_grad_() for x in tensors]


def dout_of(out):
    """Return a gradient for out."""
    return randn(*out.shape, device=out.device, dtype=out.dtype, seed=9)


def gradients(out, tensors, dout=None):
    """Return d(out * dout) for the tensors that require a gradient. If dout is None, dout_of(out)
    is used.
    """
    wanted = [x for x in tensors if x is not None and x.requires_grad]
    return torch.autograd.grad(out, wanted, dout_of(out) if dout is None else dout)
