"""fasterkernels 0.2.0: the Triton kernels, a prefill without causal and a decode. Forward only.

The kernels for Hugging Face need transformers, which the package does not ask for, and are left
out. The decode takes one query for each sequence. Neither kernel has a path for calls without keys.
"""

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

prefill_kernel = module_of("fasterkernels", "fskernels.triton.triton_fa2")
decode_kernel = module_of("fasterkernels", "fskernels.triton.triton_gqa_decode")


def prefill(q, k, v, *, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return prefill_kernel.flash_attention_2_fwd(q, k, v, sm_scale=softmax_scale)


def decode(q, k, v, *, sinks=None):
    """(batch, 1, nheads, headdim), (batch, seqlen, nheads_k, headdim) x 2 -> out like q."""
    cu_seqlens = torch.arange(len(k) + 1, dtype=torch.int32, device=k.device) * k.shape[1]
    return decode_kernel.flash_decode_gqa_varlen(q[:, 0], k.flatten(0, 1), v.flatten(0, 1), cu_seqlens, s_aux=sinks)[
        :, None
    ]


def has_keys(case):
    """Return None, or the reason for a refusal."""
    return None if case.seqlen_k else "there are no keys"


def one_query(case):
    """Return None, or the reason for a refusal."""
    if case.sinks is not None:
        return "a sink is added as it is, finding #22"
    return has_keys(case) if case.seqlen_q == 1 else "the decode has one query"


def kernel(name, function, known_failures, layout, **supports):
    """Return an Implementation of the package, with the laws that are known to fail."""
    forward, _ = adapted(function)
    common = dict(dtypes={torch.float16}, cross=True) | supports
    return Implementation(
        name=f"fasterkernels{name}",
        forward=forward,
        layout=layout,
        supports={
            "cpu": Supports(headdims={64}, **common),
            "cuda": Supports(headdims={16, 32, 64, 128}, **common),
        },
        outside="undefined",
        empty_rows="undefined",
        tile=(128, 128) if layout == "bhsd" else (16, 64),
        traced=True,
        share={"cpu": 0.05},
        known_failures=known(*known_failures),
    )


OFFSETS = "finding #23: offsets have 32 bits"

IMPLS = [
    kernel(
        "",
        prefill,
        [
            Because(OFFSETS, "seqlen_q=1 seqlen_k=4 headdim=64 dtype=float16").fail("offsets_need_64_bits"),
            Because(OFFSETS).fail("tensors_beyond_2_31_elements"),
        ],
        "bhsd",
        softmax_scale=True,
        strides=True,
        accepts=has_keys,
    ),
    kernel(
        "_decode",
        decode,
        [
            Because("finding #22: the sink is added to the sum as it is").fail(
                "sink_takes_its_share seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16 sinks=count"
            )
        ],
        "bshd",
        gqa=True,
        sinks=True,
        accepts=one_query,
    ),
]
