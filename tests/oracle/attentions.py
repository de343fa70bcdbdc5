"""Inputs by regime, PyTorch's attention, and a dense attention with planted bugs."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch.nn.attention import sdpa_kernel
from torch.nn.functional import normalize, scaled_dot_product_attention

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BIAS_SHAPES = ((1, 1, 1), (2, 4, 1), (1, 4, 97), (2, 4, 97))  # for draw_biased


@dataclass(frozen=True)
class Precision:
    """The fields of impls.Precision, which the budget reads."""

    multiply: str = "operand"
    accumulate: str = "float32"
    probabilities: str = "operand"
    scores: str = "float32"
    merge: str = "accumulator"
    parts: str = "float32"
    scaled: str = "scores"
    scaled_in_backward: str | None = None
    accumulate_in_backward: str | None = None
    tile_sum: int | None = None
    statistics: str = "float32"
    row_sum: str = "float32"
    quantize: str = "none"
    quantize_by: str = "tensor"
    exp: float = 0.0
    tanh: float = 0.0


def draw(regime, size, dtype, seed=0, device="cpu"):
    """Draw q, k, v, dout of a regime. size: (batch, seqlen_q, seqlen_k, nheads, headdim)."""
    batch, seqlen_q, seqlen_k, nheads, headdim = size
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, n, nheads, headdim) for n in (seqlen_q, seqlen_k, seqlen_k, seqlen_q)]
    if regime == "exact":
        q, k, v, dout = (torch.randint(-2, 3, s, generator=generator).float() for s in shapes)
    elif regime == "large":
        q, k, v, dout = (20 * torch.rand(s, generator=generator) - 10 for s in shapes)
    else:
        q, k, v, dout = (torch.randn(s, generator=generator) for s in shapes)
    if regime == "peaked":
        q = 4 * q
    elif regime == "flat":
        q = 1e-3 * q
    elif regime.startswith("shifted"):  # a direction that all queries and all keys share
        q[..., 0] = math.sqrt(160 * math.sqrt(headdim))
        k[..., 0] = -q[0, 0, 0, 0] if regime == "shifted_down" else q[0, 0, 0, 0]
    elif regime == "rising":  # along the keys, by 0.4 in 16 of them
        q[..., 0] = math.sqrt(headdim)
        k[..., 0] = torch.arange(seqlen_k).view(1, -1, 1) / 40
    elif regime == "selecting":
        k = normalize(k, dim=-1) * math.sqrt(headdim)
        q = 40 * k[:, torch.randint(seqlen_k, (seqlen_q,), generator=generator)]
    elif regime == "mean":
        v, dout = v + 1, dout + 1
    return [x.to(device, dtype) for x in (q, k, v, dout)]


def draw_biased(shape, dtype):
    """Draw q, k, v, dout and a bias that hides one key. Two query heads share each key head.

    shape: the shape of the bias, without its last dimension (keys).
    """
    q, k, v, dout = draw("spread", (2, 97, 130, 4, 32), dtype)
    k, v = k[:, :, :2], v[:, :, :2]
    bias = torch.randn(*shape, 130, generator=torch.Generator().manual_seed(1)).to(dtype)
    bias[..., 5] = -math.inf
    return q, k, v, dout, bias


def sdpa(backend, q, k, v, dout, causal, bias=None):
    """Return out, dq, dk, dv, dbias of PyTorch's attention, whose causal mask is top-left."""
    leaves = [x.transpose(1, 2).detach().requires_grad_() for x in (q, k, v)]
    mask = None if bias is None else bias.detach().to(q.dtype).requires_grad_()
    with sdpa_kernel(backend):
        gqa = q.shape[2] != k.shape[2]
        out = scaled_dot_product_attention(*leaves, attn_mask=mask, is_causal=causal, enable_gqa=gqa)
    out.backward(dout.transpose(1, 2))
    dq, dk, dv = (x.grad.transpose(1, 2) for x in leaves)
    dbias = None if mask is None else mask.grad
    return SimpleNamespace(out=out.detach().transpose(1, 2), dq=dq, dk=dk, dv=dv, dbias=dbias)


def dense(q, k, v, dout, *, delta_factor=1.0, multiply=lambda x: x, key_weight=1.0):
    """Return out, lse, dq, dk, dv of attention in q's dtype. The keywords plant bugs."""
    scale = q.shape[-1] ** -0.5
    q_, k_, v_, dout_ = (multiply(x.transpose(1, 2)) for x in (q, k, v, dout))
    s = scale * (q_ @ k_.mT)
    m = s.amax(-1, keepdim=True)
    e = torch.exp(s - m)
    l = e.sum(-1, keepdim=True) * key_weight
    probs = e / l
    out = multiply(probs) @ v_
    delta = delta_factor * (dout_ * out).sum(-1, keepdim=True)
    t = probs * (dout_ @ v_.mT - delta)
    grads = scale * (multiply(t) @ k_), scale * (multiply(t).mT @ q_), multiply(probs).mT @ dout_
    out, dq, dk, dv = (x.transpose(1, 2) for x in (out, *grads))
    return SimpleNamespace(out=out, lse=(m + torch.log(l)).squeeze(-1), dq=dq, dk=dk, dv=dv)


def stored(record, dtype, lse=torch.float32):
    """Return a float64 result rounded as a perfect kernel would store it."""
    return SimpleNamespace(**{n: x.to(lse if n == "lse" else dtype) for n, x in vars(record).items()})


def double(tensors):
    return [x.double() for x in tensors]
