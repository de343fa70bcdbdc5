"""fla-core 0.6.0: parallel_attn in Triton, always causal. Its window counts the query's own key.

In float32, kernels for a head dim of 128 need more shared memory than an H200 has. With cu_seqlens
the gradient of the sinks sums over rows past the last sequence (finding #32). So it is judged
apart, without such rows.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

attn = module_of("fla_core", "fla.ops.attn.parallel")


def size(window):
    """Return the package's window of a window."""
    return None if window is None else window[0] + 1


def attention(q, k, v, *, softmax_scale=None, window=None, sinks=None):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q."""
    return attn.parallel_attn(q, k, v, scale=softmax_scale, window_size=size(window), sink_bias=sinks)


def neutral(q, k, v, *, softmax_scale=None):
    """Return what attention returns, with every option on and without effect."""
    no_decay = torch.zeros(q.shape[:3], device=q.device)
    no_sinks = torch.full(q.shape[2:3], -torch.inf, device=q.device)
    return attn.parallel_attn(q, k, v, no_decay, softmax_scale, window_size=q.shape[1], sink_bias=no_sinks)


def varlen(q, k, v, *, cu_seqlens_q, softmax_scale=None, window=None, sinks=None, **same):
    """(total, nheads, headdim), (total, nheads_k, headdim) x 2 -> out like q."""
    return attn.parallel_attn(
        q[None],
        k[None],
        v[None],
        scale=softmax_scale,
        window_size=size(window),
        cu_seqlens=cu_seqlens_q,
        sink_bias=sinks,
    )[0]


def fla(name, function, dtype=torch.float16, known_failures=(), **supports):
    """Return an Implementation of the package, with the laws that are known to fail."""
    forward, backward = adapted(function, sink_grad=supports.get("sink_grad", False))
    common = dict(dtypes={dtype}, causal="always", gqa=True, softmax_scale=True) | supports
    return Implementation(
        name=f"fla_core{name}",
        forward=forward,
        backward=backward,
        supports={
            "cpu": Supports(headdims={64}, **common),
            "cuda": Supports(headdims={16, 32, 64} if dtype == torch.float32 else {16, 32, 64, 128}, **common),
        },
        outside="undefined",  # lengths that differ are not checked
        precision=Precision(multiply="tf32_cut" if dtype == torch.float32 else "operand"),
        tile=(128, 64),
        traced=True,
        share={"cpu": 0.02},
        known_failures=known(*known_failures),
    )


def no_slack(case):
    """Return None, or why a case is refused."""
    return "rows past the last sequence" if case.slack else None


CHUNKS = Because("finding #31: the chunks of cu_seqlens are cached by object").fail("""
    answers_follow_lengths_and_tables
        seqlen_q=129 seqlen_k=129 headdim=64 dtype=float32 causal=True neighbours=one
""")
PACKED = dict(form="varlen", window={"left"}, sinks=True)
IMPLS = [
    fla("", attention, strides=True, window={"left"}, sinks=True, sink_grad=True),
    fla("_neutral", neutral, strides=True),
    fla("_varlen", varlen, torch.float32, [CHUNKS], **PACKED),
    fla("_varlen_dsink", varlen, torch.float32, [CHUNKS], sink_grad=True, accepts=no_slack, **PACKED),
]
