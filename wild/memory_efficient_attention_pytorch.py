"""memory-efficient-attention-pytorch 0.1.6: attention in chunks, in PyTorch.

Chunks ("buckets") have 16 queries and 24 keys here, so that short sequences have several of them. A
row that sees no key gets the mean of all v in this package, so none is drawn. In half precision the
sums of P are rounded, too: only float32 is judged.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.wild import module_of
from flash_attest.wild.known import Because

PACKAGE = "memory_efficient_attention_pytorch"
chunked = module_of(PACKAGE, f"{PACKAGE}.memory_efficient_attention")
flash = module_of(PACKAGE, f"{PACKAGE}.flash_attention")
HIDING = ("right", "left", "window", "first_and_window", "dead_row")  # masks of a bias with -inf
CHUNKS = {"q_bucket_size": 16, "k_bucket_size": 24}


def masks(bias):
    """Return a bias as the package takes it: a mask (batch, seqlen_k), or numbers to add."""
    if bias is None:
        return {}
    return {"mask": bias.flatten(1)} if bias.dtype == torch.bool else {"attn_bias": bias}


def chunks(q, k, v, *, causal=False, bias=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return chunked.memory_efficient_attention(q, k, v, causal=causal, **masks(bias), **CHUNKS)


def chunks_backward(dout, q, k, v, out, lse, *, bias=None, **keywords):
    """-> dq, dk, dv[, dbias]; its checkpoints run under Tensor.backward alone."""
    added = bias is not None and bias.dtype != torch.bool
    inputs = [x.detach().requires_grad_() for x in ((q, k, v, bias) if added else (q, k, v))]
    with torch.enable_grad():
        chunks(*inputs[:3], bias=inputs[3] if added else bias, **keywords).backward(dout)
    return tuple(x.grad for x in inputs)


def plain(q, k, v, *, causal=False, bias=None):
    """Do the same with memory_efficient=False: all scores at once."""
    return chunked.attention(q, k, v, causal=causal, **masks(bias))


def tiles(q, k, v, *, causal=False, bias=None):
    """Do the same, with a mask for each query and with a backward of its own."""
    return flash.FlashAttentionFunction.apply(q, k, v, bias, causal, *CHUNKS.values())


def finite(case):
    """Return None, or why a case is refused: a bias of -inf should not hide a chunk."""
    if case.bias == "boolean_vector" and case.bias_nheads > 1:
        return "a mask is the same for all heads"
    if case.bias == "matrix" and case.bias_mask in HIDING and case.seqlen_k > CHUNKS["k_bucket_size"]:
        return "a chunk that a bias of -inf hides is finding #77"
    return "no queries: raises an error if causal" if case.seqlen_q == 0 else None


def square(case):
    """Return None, or why a case is refused."""
    return "causal for other lengths is finding #76" if case.causal and case.seqlen_q != case.seqlen_k else None


FLOAT32 = {"dtypes": {torch.float32}, "headdims": range(1, 129), "cross": True, "strides": True}
COMMON = {"layout": "bhsd", "empty_rows": "undefined"}
ADDED = {"bias": {"boolean_vector", "matrix"}, "bias_grad": True, **FLOAT32}
IMPLS = [
    Implementation(
        name=PACKAGE,
        forward=chunks,
        backward=chunks_backward,
        causal_alignment="top_left",
        supports=Supports(causal="optional", accepts=finite, **ADDED),
        precision=Precision(scaled="q"),
        tile=(16, 24),
        known_failures=Because("finding #77: NaN").fail("""
            biased_attention_matches_the_definition
                seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 bias=matrix bias_mask=right
        """),
        **COMMON,
    ),
    Implementation(
        name=f"{PACKAGE}_plain",
        forward=plain,
        backward="autograd",
        supports=Supports(causal="optional", accepts=finite, **ADDED),
        precision=Precision(scaled="q"),
        **COMMON,
    ),
    Implementation(
        name=f"{PACKAGE}_flash",
        forward=tiles,
        backward="autograd",
        supports=Supports(causal="optional", bias={"boolean_vector", "boolean_matrix"}, accepts=square, **FLOAT32),
        tile=(16, 24),
        known_failures=Because("finding #76: aligned at the wrong side of the top left corner").fail("""
            out_averages_exactly_its_prefix seqlen_q=2 seqlen_k=3 headdim=2 dtype=float32 causal=True
        """),
        **COMMON,
    ),
]
