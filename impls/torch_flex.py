"""torch.nn.attention.flex_attention, which generates a kernel from a function of a single score.

Each new combination of dtype, bias, set of inputs that require grad, and special size compiles for
5 to 10 s. So `supports` is small enough for four graphs: with and without bias, with and without
gradients. Everything else that varies is data: the score function reads the scale, the softcap and
the window from tensors, batch and heads are one dimension, and lengths are dynamic multiples of
128. It does not run on a CPU, because PyTorch has no backward there.

It takes no sinks. The usual way, out * sigmoid(lse - sink), rounds out a second time, and dout
before the backward of the kernel: dq is then off by more than twice of what is allowed.
"""

import functools

import torch
from torch.nn.attention import flex_attention as flex

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.contract.arguments import check_softcap, check_window
from flash_attest.impls.contract.shares import MADE_FOR_EACH_SHAPE

HEADDIM = 64
MULTIPLE = 128
# A tile of a float32 bias is kept in shared memory next to K and V. PyTorch's default tiles do not
# leave room for it.
SMALL_TILES = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_M1": 32, "BLOCK_N1": 64, "BLOCK_M2": 64, "BLOCK_N2": 32}
SMALL_TILES |= {"num_stages": 1}
INF = float("inf")


def forward(q, k, v, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None):
    """(b, h, sq, d), (b, h, sk, d), (b, h, sk, d) -> out (b, h, sq, d), lse (b, h, sq)."""
    check(q, k, v, window, bias, softcap)
    batch, nheads, seqlen_q, headdim = q.shape
    seqlen_k = k.shape[2]
    scale = headdim**-0.5 if softmax_scale is None else softmax_scale
    options = [scale, softcap is not None, softcap or 1.0, *bounds_of(window, causal, seqlen_q, seqlen_k)]
    options = [torch.tensor(option, device=q.device) for option in options]
    q, k, v = (x.flatten(0, 1).unsqueeze(1) for x in (q, k, v))  # (b h, 1, s, d): flex specialises on nheads
    if bias is not None:
        bias = bias.float().expand(batch, nheads, seqlen_q, seqlen_k).flatten(0, 1).contiguous()
    if torch.is_grad_enabled():  # all inputs or none, as PyTorch compiles for each set of inputs that require grad
        q, k, v, bias = (x if x is None or x.requires_grad else x.detach().requires_grad_() for x in (q, k, v, bias))
    with torch._dynamo.config.patch(recompile_limit=64):  # beyond this limit, PyTorch silently runs in eager mode
        out, lse = compiled(bias is not None)(q, k, v, bias, *options)
    return out.view(batch, nheads, seqlen_q, headdim), lse.view(batch, nheads, seqlen_q)


def bounds_of(window, causal, seqlen_q, seqlen_k):
    """Return first, last: query i sees keys i + first .. i + last."""
    left, right = window or (None, None)
    diagonal = seqlen_k - seqlen_q
    if causal:
        right = 0
    return -seqlen_q if left is None else diagonal - left, seqlen_k if right is None else diagonal + right


@functools.cache
def compiled(biased):
    """Return the attention function with or without a bias. Its first call compiles it."""

    def attention(q, k, v, bias, scale, capped, softcap, first, last):
        def score(s, b, h, i, j):
            s = s * scale
            s = torch.where(capped, softcap * torch.tanh(s / softcap), s)
            s = s + bias[b, i, j] if biased else s
            return torch.where((i + first <= j) & (j <= i + last), s, -INF)

        options = SMALL_TILES if biased else None
        if hasattr(flex, "AuxRequest"):  # torch 2.9 and later
            request = flex.AuxRequest(lse=True)
            out, aux = flex.flex_attention(q, k, v, score, scale=1.0, kernel_options=options, return_aux=request)
            return out, aux.lse
        return flex.flex_attention(q, k, v, score, scale=1.0, kernel_options=options, return_lse=True)

    return torch.compile(attention, dynamic=True, fullgraph=True)


def accepts(case):
    """Return why a case is refused; None if it is not."""
    if case.seqlen_q % MULTIPLE or case.seqlen_k % MULTIPLE or not case.seqlen_q or not case.seqlen_k:
        return f"seqlens should be multiples of {MULTIPLE}: PyTorch compiles again for others"
    if case.batch * case.nheads < 2:
        return "batch * nheads should be at least 2: PyTorch compiles again for 1"
    return None


def check(q, k, v, window, bias, softcap):
    """Raise ValueError for a call outside of `supports`."""
    (batch, nheads, seqlen_q, headdim), seqlen_k = q.shape, k.shape[2]
    if not q.is_cuda:
        raise ValueError(f"torch_flex: q is on {q.device}: should be on a CUDA device")
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in IMPL.supports.dtypes:
        raise ValueError(f"torch_flex: q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: should be one supported dtype")
    if headdim != HEADDIM or k.shape != v.shape or k.shape != (batch, nheads, seqlen_k, headdim):
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"torch_flex: {shapes} should have one batch, one nheads and headdim {HEADDIM}")
    if seqlen_q < 1 or seqlen_k < 1 or seqlen_q % MULTIPLE or seqlen_k % MULTIPLE or batch * nheads < 2:
        sizes = f"batch={batch} nheads={nheads} seqlen_q={seqlen_q} seqlen_k={seqlen_k}"
        raise ValueError(f"torch_flex: {sizes}: seqlens should be multiples of {MULTIPLE}, batch * nheads at least 2")
    if not all(x.is_contiguous() for x in (q, k, v)):
        raise ValueError("torch_flex: q, k, v should be contiguous: PyTorch compiles again for other strides")
    full = (batch, nheads, seqlen_q, seqlen_k)
    if bias is not None and not bias.is_floating_point():
        raise ValueError(f"torch_flex: bias is {bias.dtype}: should be numbers, to be added to the scores")
    if bias is not None and (
        bias.shape[3] != seqlen_k or any(n not in (1, m) for n, m in zip(bias.shape, full, strict=True))
    ):
        raise ValueError(f"torch_flex: bias {tuple(bias.shape)} does not broadcast to {full}")
    check_window(window)
    check_softcap(softcap)


IMPL = Implementation(
    name="torch_flex",
    forward=forward,
    backward="autograd",
    layout="bhsd",
    devices={"cuda"},
    supports=Supports(
        dtypes={torch.bfloat16},
        headdims={HEADDIM},
        causal="optional",
        bias={"matrix"},
        bias_grad=True,
        cross=True,
        softmax_scale=True,
        window={"left", "right", "both"},
        softcap=True,
        lse_grad=True,
        accepts=accepts,
    ),
    causal_alignment="bottom_right",
    lse="natural",
    empty_rows="zero",
    precision=Precision(probabilities="operand"),
    share=MADE_FOR_EACH_SHAPE,
)
