"""ffpa-attn 0.2.4: large head dims, in Triton.

It documents that head dims up to 256, fewer than 512 keys, and 8 to 511 queries go to PyTorch. The
variables that it has for its own tests make such calls take its kernels, too. It documents causal
for at most as many queries as keys, and not together with a mask, and that gradients are stored
from tile to tile in the dtype of the inputs, unless its option of float32 is taken, as here. Only
positive scales are declared, and no empty sequences, for which it raises errors: 0 is taken for the
default, and a negative one gives NaN (findings #29 and #30).
"""

import os
from unittest.mock import patch

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("ffpa_attn", "ffpa_attn")
KERNELS = {"FFPA_FORCE_NO_SDPA_FALLBACK": "1", "FFPA_TRITON_ALLOW_SMALL_D": "1"}
SUMS = dict(grad_kv_storage_dtype=torch.float32, grad_q_storage_dtype=torch.float32)
TILE = 32  # keys of a tile, at least
BACKWARD = package.TritonBackend(forward=False, backward=True, **SUMS)


def attention(q, k, v, *, causal=False, bias=None, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return package.ffpa_attn_func(
        q, k, v, bias, is_causal=causal, scale=softmax_scale, enable_gqa=True, backward_backend=BACKWARD
    )


def by_kernels(function):
    def call(*tensors, **keywords):
        with patch.dict(os.environ, KERNELS):
            return function(*tensors, **keywords)

    return call


def accepts(case):
    """Return why a case is refused; None if it is not."""
    if 0 in (case.seqlen_q, case.seqlen_k):
        return "both lengths should be at least 1"
    if case.seqlen_q == 1:
        return "a single query is finding #142"
    if case.causal and case.seqlen_k < case.seqlen_q:
        return "causal takes at most as many queries as keys"
    if case.bias and case.bias_mask not in ("none", "right", "finite", "alibi") and case.seqlen_k > TILE:
        return "a mask that may hide the first tile of keys is finding #122"
    return None


def implementation(name, *known_failures, **features):
    forward, backward = map(by_kernels, adapted(attention, bias_grad="bias" in features))
    same = dict(cross=True, gqa=True, softmax_scale="positive", strides=True, accepts=accepts) | features
    return Implementation(
        name=f"ffpa_attn{name}", forward=forward, backward=backward, layout="bhsd",
        supports={
            "cpu": Supports(headdims={64}, **same),
            "cuda": Supports(headdims={320, 512, 1024}, **same),  # of 12, as each is compiled for a minute
        },
        empty_rows="undefined", traced=True, share={"cpu": 0.02}, known_failures=known(*known_failures), **ATOMICS,
    )  # fmt: skip


# Kernels for Hopper sum gradients by atomics; those that are emulated do not.
ATOMICS = {"repeatable": {"out"}} if torch.cuda.is_available() else {}


BEYOND = "finding #121: offsets of heads have 32 bits"
HIDDEN = "finding #122: a first tile of keys that is hidden gives NaN"
SUMS = "finding #142: scores of a single query are rounded to the dtype of the inputs"
ONE_KEY = "seqlen_q=2 seqlen_k=65 headdim=64 dtype=float16 bias=matrix bias_mask=dead_row bias_keeps_key=True"


KNOWN = known(
    Because(BEYOND).fail("tensors_beyond_2_31_elements"),
    Because(BEYOND, "seqlen_q=2 seqlen_k=1 headdim=64 dtype=float16 nheads=2", on="cpu").fail("offsets_need_64_bits"),
    Because(BEYOND, on="cuda").fail("offsets_need_64_bits"),
    *(
        Because(SUMS, f"seqlen_q=1 seqlen_k=512 headdim={headdim} dtype=bfloat16 regime=shifted_up", on=device).fail(
            "single_query_matches_the_definition"
        )
        for device, headdim in (("cpu", 64), ("cuda", 320))
    ),
)
MASKED = known(
    # On a GPU it shows where tiles of keys outnumber the SMs.
    Because(HIDDEN, ONE_KEY, on="cpu").fail("out_averages_the_keys_that_a_bias_leaves seed=3")
)
IMPLS = [
    implementation("", KNOWN, causal="optional"),
    implementation("_biased", KNOWN, MASKED, bias={"matrix", "boolean_matrix"}, bias_grad=True),
]
