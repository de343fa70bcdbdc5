"""PyTorch's own attention, with one implementation for each kernel.

The kernels are those behind torch.nn.functional.scaled_dot_product_attention. The fused kernels are
called through their aten operators, which also return lse and have an autograd formula. Code here
prepares an operator's inputs as scaled_dot_product_attention does; for example, it pads a bias.
`accepts` refuses calls, by the suite and by others, that a kernel does not support or gets wrong
without an error. This was measured with torch 2.11 on an H200 and 2.13 on a CPU.
"""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.contract.shares import MADE_FOR_EACH_SHAPE, OTHERS_TEST_IT
from flash_attest.impls.torch_refusals import (
    refuses_bias_with_causal,
    refuses_causal_scale_not_positive,
    refuses_cudnn_beyond_2_31,
    refuses_empty,
    refuses_far_columns,
    refuses_far_rows,
    refuses_flash_beyond_2_31,
    refuses_half_gqa,
    refuses_half_tiles_of_keys,
    refuses_no_keys,
    refuses_one_by_one,
    refuses_scale_not_positive,
)

aten = torch.ops.aten
FLOAT, HALF = {torch.float32}, {torch.float16, torch.bfloat16}
MULTIPLES_OF_8 = range(8, 257, 8)


def math(q, k, v, causal, bias, softmax_scale):
    """(b, h, sq, d), (b, hk, sk, d), (b, hk, sk, d) -> out (b, h, sq, d), all in float32."""
    gqa = q.shape[1] != k.shape[1]
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=causal, scale=softmax_scale, enable_gqa=gqa
        )


def flash(q, k, v, causal, bias, softmax_scale):
    """(b, h, s, d) x 3 -> out, lse (b, h, sq). FlashAttention-2; causal is bottom right."""
    headdim = q.shape[-1]
    scale = headdim**-0.5 if softmax_scale is None else softmax_scale  # of headdim before padding
    q, k, v = (F.pad(x, (0, -headdim % 8)) for x in (q, k, v))
    out, lse, *_ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)
    return out[..., :headdim], lse.masked_fill(lse == float("inf"), -float("inf"))  # FA2 writes +inf for a dead row


def flash_cpu(q, k, v, causal, bias, softmax_scale):
    """(b, h, s, d) x 3 -> out, lse (b, h, sq). ATen's own kernel for CPUs; causal is top left."""
    if reason := refuses_far_columns(q, k, v):
        raise ValueError(f"torch_sdpa_flash_cpu: {reason}")
    if bias is not None and bias.dtype == torch.bool:  # as scaled_dot_product_attention does
        bias = torch.zeros_like(bias, dtype=q.dtype).masked_fill(~bias, float("-inf"))
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, causal, attn_mask=bias, scale=softmax_scale
    )
    return out, lse


def flash_cpu_out(*args):
    """Call flash_cpu and return only out (b, h, sq, d)."""
    return flash_cpu(*args)[0]


def efficient(q, k, v, causal, bias, softmax_scale):
    """(b, h, s, d) x 3 -> out, lse (b, h, sq). xformers' CUTLASS kernel; causal is top left."""
    if bias is not None:  # rows must start at multiples of 16 bytes: pad them and take a view
        seqlen_q, seqlen_k = q.shape[2], k.shape[2]
        bias = F.pad(bias.to(q.dtype), (0, -seqlen_k % 16))[..., :seqlen_k]
        bias = bias.expand(q.shape[0], q.shape[1], seqlen_q, seqlen_k)
    out, lse, *_ = aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, 0.0, causal, scale=softmax_scale)
    return out, lse[..., : q.shape[2]]  # the kernel rounds the rows of lse up to a multiple of 32


def cudnn(q, k, v, causal, bias, softmax_scale):
    """(b, h, s, d) x 3 -> out, lse (b, h, sq). The kernel that cuDNN picks; causal is top left."""
    out, lse, *_ = aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal, False, scale=softmax_scale
    )
    return _ContiguousGradient.apply(out), lse.reshape(q.shape[:3])


class _ContiguousGradient(torch.autograd.Function):
    """Make the gradient contiguous, because PyTorch's backward for cuDNN ignores other strides."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.contiguous()


def implementation(name, kernel, *, accepts, supports, **declared):
    """Return an Implementation that calls a kernel and refuses calls outside of its contract."""
    supports = Supports(**supports, accepts=lambda case: next(filter(None, (rule(case) for rule in accepts)), None))

    def forward(q, k, v, *, causal=False, bias=None, softmax_scale=None):
        if reason := reason_to_refuse(supports, q, k, v, causal, bias, softmax_scale):
            raise ValueError(f"{name}: {reason}")
        return kernel(q, k, v, causal, bias, softmax_scale)

    return Implementation(name=name, forward=forward, backward="autograd", layout="bhsd", supports=supports, **declared)


def reason_to_refuse(supports, q, k, v, causal, bias, softmax_scale):
    """Return why this call is refused, or None."""
    (batch, nheads, seqlen_q, headdim), (nheads_k, seqlen_k) = q.shape, k.shape[1:3]
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in supports.dtypes:
        return f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: should be one of {sorted(map(str, supports.dtypes))}"
    if k.shape != v.shape or k.shape != (batch, nheads_k, seqlen_k, headdim):
        return f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} do not fit together"
    if headdim not in supports.headdims:
        return f"headdim={headdim} is not in {supports.headdims}"
    if nheads_k == 0 or nheads % nheads_k or (nheads != nheads_k and not supports.gqa):
        return f"nheads={nheads} and nheads_k={nheads_k}: should be equal" + " or a multiple" * supports.gqa
    if supports.strides is not True and any(x.shape[-1] > 1 and x.stride(-1) != 1 for x in (q, k, v)):
        return "the last dimension of q, k, v should have stride 1: the kernel ignores other strides"
    if reason := refuses_far_rows(q, k, v, rows=2):
        return reason
    kind = None if bias is None else "matrix" if bias.shape[2] > 1 else "vector"
    if kind and bias.dtype == torch.bool:
        kind = f"boolean_{kind}"
    if kind and kind not in supports.bias_kinds:
        return f"takes no bias of this kind: {kind}"
    full = (batch, nheads, seqlen_q, seqlen_k)
    if kind and (bias.shape[3] != seqlen_k or any(n not in (1, m) for n, m in zip(bias.shape, full, strict=True))):
        return f"bias {tuple(bias.shape)} does not broadcast to {full}"
    case = SimpleNamespace(batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nheads=nheads, nheads_k=nheads_k)
    case.headdim, case.dtype, case.causal, case.bias, case.softmax_scale = headdim, q.dtype, causal, kind, softmax_scale
    return supports.accepts(case)


FLASH_CPU = {
    "gqa": True,
    "headdims": range(1, 257),
    "causal": "optional",
    # Without a gradient, for which scaled_dot_product_attention uses the math kernel.
    "bias": {"vector", "matrix", "boolean_vector", "boolean_matrix"},
    "cross": True,
    "softmax_scale": True,
    "strides": "last_contiguous",
}
EFFICIENT = {
    "headdims": MULTIPLES_OF_8,
    "causal": "optional",
    "cross": True,
    "softmax_scale": True,
}

IMPLS = [
    implementation(
        "torch_sdpa_math",
        math,
        accepts=[refuses_bias_with_causal, refuses_no_keys, refuses_half_gqa],
        supports={
            "dtypes": FLOAT | HALF,
            "headdims": range(1, 1025),
            "causal": "optional",
            "bias": {"vector", "matrix", "boolean_vector", "boolean_matrix"},
            "bias_grad": True,
            "cross": True,
            "gqa": True,
            "softmax_scale": True,
            "strides": True,
        },
        causal_alignment="top_left",
        precision=Precision(probabilities="float32"),  # half inputs are widened first
        share=OTHERS_TEST_IT,
    ),
    # This kernel has two entries. In half dtypes its exp is an approximation with at most 20 bits.
    # lse is wrong by up to 5e-5, so it is not returned, and dk and dv are summed in the dtype of
    # the inputs. empty_rows is "undefined" in float32, because a row without keys gives out 0 and
    # lse 0.
    implementation(
        "torch_sdpa_flash_cpu",
        flash_cpu,
        devices={"cpu"},
        accepts=[refuses_bias_with_causal, refuses_empty, refuses_causal_scale_not_positive],
        supports={"dtypes": FLOAT, **FLASH_CPU},
        causal_alignment="top_left",
        lse="natural",
        empty_rows="undefined",
        share=OTHERS_TEST_IT,
    ),
    implementation(
        "torch_sdpa_flash_cpu_half",
        flash_cpu_out,
        devices={"cpu"},
        accepts=[refuses_bias_with_causal, refuses_empty, refuses_causal_scale_not_positive, refuses_half_gqa],
        supports={"dtypes": HALF, **FLASH_CPU},
        causal_alignment="top_left",
        precision=Precision(accumulate="operand"),
        share=OTHERS_TEST_IT,
    ),
    implementation(
        "torch_sdpa_flash",
        flash,
        devices={"cuda"},
        accepts=[refuses_empty, refuses_scale_not_positive, refuses_flash_beyond_2_31],
        supports={
            "dtypes": HALF,
            "headdims": range(1, 257),
            "causal": "optional",
            "cross": True,
            "softmax_scale": True,
        },
        lse="natural",
        repeatable={"out", "lse", "dk", "dv"},  # dq is summed by atomics
        share=OTHERS_TEST_IT,
    ),
    # This kernel also has two entries. In float32 each product is computed as three tf32 products
    # (CUTLASS OpMultiplyAddFastF32), which is less exact than float32: with a single key, out is
    # not v. The bias must have q's dtype, so a float32 bias needs float32 inputs. A row without
    # keys gives out 0 and lse 0.
    implementation(
        "torch_sdpa_efficient",
        efficient,
        devices={"cuda"},
        accepts=[refuses_empty],
        supports={"dtypes": HALF, **EFFICIENT},
        causal_alignment="top_left",
        lse="natural",
        repeatable={"out", "lse", "dk", "dv"},  # dq is summed by atomics
        share=OTHERS_TEST_IT,
    ),
    implementation(
        "torch_sdpa_efficient_float32",
        efficient,
        devices={"cuda"},
        accepts=[refuses_bias_with_causal, refuses_empty],
        supports={"dtypes": FLOAT, **EFFICIENT, "bias": {"vector", "matrix"}, "bias_grad": True},
        causal_alignment="top_left",
        lse="natural",
        empty_rows="undefined",
        repeatable={"out", "lse", "dk", "dv", "dbias"},
        precision=Precision(multiply="tf32"),
        share=OTHERS_TEST_IT,
    ),
    # dout is made contiguous, because PyTorch caches one backward plan per shape and strides of q,
    # k, v, and ignores the strides of dout. A second layout of dout in the same process would get
    # wrong gradients without an error (torch 2.11).
    implementation(
        "torch_sdpa_cudnn",
        cudnn,
        devices={"cuda"},
        accepts=[
            refuses_empty,
            refuses_one_by_one,
            refuses_scale_not_positive,
            refuses_half_tiles_of_keys,
            refuses_cudnn_beyond_2_31,
        ],
        supports={
            "dtypes": HALF,
            "headdims": range(8, 129, 8),
            "causal": "optional",
            "cross": True,
            "softmax_scale": True,
        },
        causal_alignment="top_left",
        lse="natural",
        repeatable={"out", "lse", "dk", "dv"},  # dq is summed by atomics
        share=MADE_FOR_EACH_SHAPE,
    ),
]
