"""Calls of flash_attention_1 and _2: inputs, gradients, a check of results."""

import pytest
import torch

from flash_attest.impls.numba.device import EMULATED
from tests.impls.cuda import values
from tests.impls.cuda.values import randn

DEVICE = "cpu" if EMULATED else "cuda"
on_a_gpu = pytest.mark.skipif(EMULATED, reason="there is no GPU")
GRADIENTS = ("dq", "dk", "dv", "dbias")


def inputs(seqlen_q=20, seqlen_k=37, headdim=16, dtype=torch.float32, bias=(1, 4, 20, 37), device=DEVICE):
    """Return q, k, v and a float32 bias of this shape (or None), all leaves.

    There are two batches, and four query heads on two key heads.
    """
    shapes = [(2, seqlen_q, 4, headdim), (2, seqlen_k, 2, headdim), (2, seqlen_k, 2, headdim)]
    qkv = [randn(*shape, device=device, dtype=dtype, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    return [*qkv, None if bias is None else randn(*bias, device=device, seed=7).requires_grad_()]


def dout_of(out):
    """Return the gradient of out that `gradients` uses."""
    return randn(*out.shape, device=out.device, dtype=out.dtype, seed=8)


def gradients(out, tensors, dout=None):
    """Return the gradients of the tensors that require one, in their order."""
    wanted = [x for x in tensors if x is not None and x.requires_grad]
    return torch.autograd.grad(out, wanted, dout_of(out) if dout is None else dout)


def is_attention(got, q, k, v, bias=None, **options):
    """Assert that the results in `got`, with dout_of(out), are within the budget of the oracle."""
    values.is_attention(got, q, k, v, bias, dout_of(q), **options)
