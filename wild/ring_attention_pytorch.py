"""ring-attention-pytorch 0.5.20: attention in buckets, in PyTorch, and its kernels in Triton.

Buckets have 16 rows, so that short sequences have several of them. For each pair of buckets Python
launches some twenty kernels, so from 1024 keys on buckets have 1024 rows, as by default.

A mask of keys is ignored if causal, as a comment in its source says, so no case has both. More keys
than queries are judged apart if causal, without their gradients, which are wrong (finding #83).
"""

import torch

from flash_attest import Implementation, Supports
from flash_attest.wild import module_of
from flash_attest.wild.known import Because

BUCKETS, LONG = (16, 1024), 1024  # of short and long sequences; the first long length
ring = module_of("ring_attention_pytorch", "ring_attention_pytorch.ring_flash_attention")


def attention(q, k, v, *, causal=False, bias=None, softcap=None):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q."""
    mask = None if bias is None else bias.flatten(1).expand(len(q), -1)
    cap = {} if softcap is None else {"softclamp_qk_sim": True, "softclamp_value": float(softcap)}
    bucket = BUCKETS[k.shape[1] >= LONG]
    return ring.ring_flash_attn(q, k, v, mask, causal, bucket_size=bucket, **cap)


def attention_causal(q, k, v):
    """Do the same, causal."""
    return attention(q, k, v, causal=True)


def square(case):
    """Return None, or why a case is refused: causal with other lengths is judged apart."""
    if case.bias and (case.causal or case.bias_nheads > 1):
        return "a mask is the same for all heads, and not for causal"
    if case.seqlen_k == 0:
        return "no keys: raises an error"
    return "causal needs seqlen_q = seqlen_k" if case.causal and case.seqlen_q != case.seqlen_k else None


def one_bucket(case):
    """Return None, or why a case is refused: several buckets are finding #86."""
    return None if 0 < case.seqlen_q < case.seqlen_k <= 16 else "some queries, and up to 16 keys"


FLOAT32 = {"dtypes": {torch.float32}, "headdims": range(1, 129), "cross": True, "gqa": True, "strides": True}
IMPLS = [
    Implementation(
        name="ring_attention_pytorch",
        forward=attention,
        backward="autograd",
        gqa_order="modulo",
        supports=Supports(**FLOAT32, causal="optional", bias={"boolean_vector"}, softcap=True, accepts=square),
        tile=(16, 16),
        outside="undefined",
        known_failures=Because("finding #83: its backward has another mask").fail(
            "v_dv_equals_out_dout seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 causal=True"
        ),
    ),
    Implementation(
        name="ring_attention_pytorch_causal",
        forward=attention_causal,
        gqa_order="modulo",
        empty_rows="undefined",
        outside="undefined",
        supports=Supports(**FLOAT32, causal="always", accepts=one_bucket),
        tile=(16, 16),
    ),
]
