"""conch-triton-kernels 1.3: attention over the pages of a cache, in Triton.

m, l and out are kept in the dtype of out: finding #12 says what that does to thousands of keys. If
causal, one query sees all keys, and more are aligned at the top left (finding #10): then other
lengths are left out.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.notation import slots_of
from flash_attest.wild import module_of
from flash_attest.wild.known import Because

varlen = module_of("conch_triton_kernels", "conch.ops.attention.varlen_attention")
paged = module_of("conch_triton_kernels", "conch.ops.attention.paged_attention")
cache = module_of("conch_triton_kernels", "conch.ops.vllm.reshape_and_cache")


def attention(q, k, v, *, cu_seqlens_q, max_seqlen_q, block_table, seqused_k, max_seqlen_k, **optional):
    """q (total_q, nheads, headdim), k, v (pages, page_size, nheads_k, headdim) -> out like q."""
    if (k_new := optional.get("k_new")) is not None:
        slots = slots_of(block_table, seqused_k + k_new.shape[1], k.shape[1], start=seqused_k)
        cache.reshape_and_cache(k_new.flatten(0, 1), optional["v_new"].flatten(0, 1), k, v, slots)
        seqused_k = seqused_k + k_new.shape[1]
    return varlen.varlen_attention(
        q, k, v, cu_seqlens_q, max_seqlen_q, seqused_k, max_seqlen_k, block_table, causal=optional.get("causal", False),
        scale=optional.get("softmax_scale"), softcap=optional.get("softcap") or 0.0,
    )  # fmt: skip


def decode(q, k, v, *, cu_seqlens_q, max_seqlen_q, block_table, seqused_k, max_seqlen_k, softmax_scale, softcap):
    """Do the same for one query of each sequence, which has keys."""
    rows = cu_seqlens_q[1:].long() - 1
    some = (cu_seqlens_q.diff() > 0) & (seqused_k > 0)
    out = torch.zeros_like(q)
    if some.any():
        keys = block_table[some].contiguous(), seqused_k[some].contiguous()
        out[rows[some]] = paged.paged_attention(q[rows[some]], k, v, *keys, scale=softmax_scale, softcap=softcap or 0.0)
    return out


def square(case):
    """Return None, or why a case is refused."""
    return "causal for other lengths is finding #10" if case.causal and case.seqlen_q != case.seqlen_k else None


def one_query(case):
    """Return None, or why a case is refused: neighbours have one query, too."""
    return None if case.seqlen_q == 1 and case.neighbours not in ("longer", "mixed") else "one query"


forward, _ = adapted(attention)
forward_decode, _ = adapted(decode)
PAGES = {"form": "paged", "page_sizes": (16, 32), "gqa": True, "softmax_scale": True, "append": True}
SIZES = {"headdims": {16, 32, 64, 128} if torch.cuda.is_available() else {64}, "cross": True}
FLOAT32 = {"dtypes": {torch.float32}, **SIZES}
TF32 = Precision(multiply="tf32_cut", merge="lse")
HALF = Precision(statistics="operand", accumulate="operand", merge="lse", parts="operand")
IMPLS = [
    Implementation(
        name="conch_triton_kernels",
        forward=forward,
        supports=Supports(causal="optional", softcap=True, accepts=square, **PAGES, **FLOAT32),
        precision=TF32,
        share={"cpu": 0.2},
        known_failures=Because("finding #10: some queries are aligned at the top left, one at the bottom right").fail(
            "out_averages_exactly_its_prefix seqlen_q=2 seqlen_k=3 headdim=64 dtype=float32 causal=True"
        ),
    ),
    Implementation(
        name="conch_triton_kernels_half",
        forward=forward,
        supports=Supports(dtypes={torch.bfloat16}, **PAGES, **SIZES),
        precision=HALF,
        share={"cpu": 0.05},
    ),
    Implementation(
        name="conch_triton_kernels_decode",
        forward=forward_decode,
        supports=Supports(softcap=True, accepts=one_query, **(PAGES | {"append": False}), **FLOAT32),
        precision=TF32,
        share={"cpu": 0.2},
        known_failures=Because("finding #11: offsets of pages have 32 bits").fail(
            "pages_may_lie_far_apart seqlen_q=1 seqlen_k=1 headdim=64 dtype=float32 nheads=3"
        ),
    ),
]
