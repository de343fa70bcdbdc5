"""Inputs and gradients for tests of flash_attn_func and its packed forms."""

import pytest
import torch

from flash_attest.impls.triton.device import EMULATED

DEVICE = "cpu" if EMULATED else "cuda"
LEFT, RIGHT = "top_left", "bottom_right"
on_a_gpu = pytest.mark.skipif(EMULATED, reason="there is no GPU")


def randn(*shape, dtype=torch.float32, seed=0):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 1000 * sum(shape)))
    return drawn.to(DEVICE, dtype)


def inputs(seqlen_q=20, seqlen_k=37, nheads=4, nheads_k=2, headdim=16, dtype=torch.float32, bias=True, device=DEVICE):
    """Return q, k, v and a bias of this shape (or None), all leaves. One bias serves two
    batches.
    """
    shapes = [(2, seqlen_q, nheads, headdim), (2, seqlen_k, nheads_k, headdim), (2, seqlen_k, nheads_k, headdim)]
    tensors = [randn(*shape, dtype=dtype, seed=n) for n, shape in enumerate(shapes)]
    tensors.append(randn(1, nheads, seqlen_q, seqlen_k, seed=3) if bias else None)
    return [x if x is None else x.to(device).requires_grad_() for x in tensors]


def gradients(out, tensors, dout=None):
    """Return the gradients of sum(out * dout) for the tensors that require grad.

    If dout is None, it is drawn.
    """
    wanted = [x for x in tensors if x is not None and x.requires_grad]
    dout = randn(*out.shape, dtype=out.dtype, seed=9).to(out.device) if dout is None else dout
    return torch.autograd.grad(out, wanted, dout)
