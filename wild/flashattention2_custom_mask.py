"""flashattention2-custom-mask 0.1.1: the Triton tutorial's kernel with an integer mask, in float16.

The kernels take whole tiles of 128 rows, which the backward asserts and the forward does not
(finding #57). The backward is right with a causal mask alone (finding #56), so each mask has an
implementation of its own. Head dim 16 passes the package's check, but no tile fits it. A row that
sees no key is not defined: hidden scores are -1e6, not -inf. Of negative scales, which give NaN,
-0.5 alone is declared.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("flashattention2_custom_mask", "fa2_custom_mask")


def plain(q, k, v, *, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    return package.flash_attention_custom_mask(q, k, v, None, scale)


def causal(q, k, v):
    """Mask by the triangle that makes attention causal, in memory once for all heads."""
    n = q.shape[2]
    mask = torch.ones(n, n, dtype=torch.int32, device=q.device).tril().expand(len(q), q.shape[1], n, n)
    return package.flash_attention_custom_mask(q, k, v, mask, q.shape[-1] ** -0.5)


def masked(q, k, v, *, bias=None):
    """Mask by bias (batch | 1, nheads | 1, seqlen, seqlen), True where a query sees a key."""
    if bias is not None:
        bias = bias.int().expand(len(q), q.shape[1], -1, -1)
    return package.flash_attention_custom_mask(q, k, v, bias, q.shape[-1] ** -0.5)


def accepts(case):
    """Return None, or why not."""
    if case.seqlen_q % 128:
        return "lengths should be multiples of 128"
    return None if case.scale >= 0 or case.scale == -0.5 else "negative scales give NaN, finding #59"


def one_tile(case):
    """Return None, or why not."""
    return "gradients of 256 rows are finding #56" if case.seqlen_q > 128 else accepts(case)


def supports(**features):
    """Return the calls with whole tiles, by device: each head dim is compiled on a CPU."""
    every = dict(dtypes={torch.float16}, accepts=accepts) | features
    return {"cpu": Supports(headdims={32}, **every), "cuda": Supports(headdims={32, 64, 128}, **every)}


GRADIENT = "finding #56: gradients skip tiles from length 256 on"
SHAPES = "finding #57, finding #58: the forward checks neither lengths nor strides"
NEGATIVE = "finding #59: the maximum is taken before a negative scale"
TILE = "seqlen_q=128 seqlen_k=128 headdim=32 dtype=float16"


def implementation(name, function, *known_failures, has_backward=False, tile=TILE, **features):
    """Return an Implementation. tile: a case with one tile."""
    forward, backward = adapted(function)
    shapes = Because(SHAPES, tile).fail("calls_outside_the_promise_raise_or_are_right")
    return Implementation(
        name=f"flashattention2_custom_mask_{name}",
        forward=forward,
        backward=backward if has_backward else None,
        layout="bhsd",
        supports=supports(**features),
        empty_rows="undefined",
        precision=Precision(scaled_in_backward="k"),
        tile=(128, 64),
        traced=True,
        share={"cpu": 0.05},
        known_failures=known(shapes, *known_failures),
    )


IMPLS = [
    implementation(
        "plain",
        plain,
        Because(NEGATIVE, TILE).fail("negative_scale_is_negated_q softmax_scale=0.5 regime=peaked"),
        softmax_scale=True,
    ),
    implementation(
        "gradient",
        plain,
        Because(GRADIENT, TILE).fail("gradients_match_the_definition seqlen_q=256 seqlen_k=256"),
        has_backward=True,
        accepts=one_tile,
    ),
    implementation("causal", causal, has_backward=True, tile=f"{TILE} causal=True", causal="always"),
    implementation("masked", masked, bias={"boolean_matrix"}),
]
