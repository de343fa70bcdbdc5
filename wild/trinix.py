"""trinix 0.1.4: attention in Triton with masks, windows, ALiBi and dropout; no backward.

Its docstring documents a mask that is added to the scores, and lengths that may differ; the kernel
takes equal lengths alone and raises an error for others. Only the forward is judged: out does not
require a gradient (finding #102). A row is NaN if its first tile of keys is hidden, by a mask or by
a window (findings #103 and #104). Masks and windows that hide it are left out, up to one length, so
that the rest is judged. Rows that see no key are not defined.
"""

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import imported
from flash_attest.emulation import emulated
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

module_of("trinix", "trinix")
functional = imported("trinix.layers.attention.functional")


def plain(q, k, v, *, causal=False, softmax_scale=None):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q."""
    with emulated():
        return functional.triton_attn_func(q, k, v, softmax_scale=softmax_scale, causal=causal)


def neutral(q, k, v, *, causal=False, softmax_scale=None):
    """Give every option a value that turns it off."""
    n, none = q.shape[1], torch.zeros(q.shape[2], device=q.device)
    mask = q.new_zeros(n, n)
    with emulated():
        return functional.triton_attn_func(q, k, v, mask, 0.0, softmax_scale, causal, (n, n), none)


def masked(q, k, v, *, causal=False, bias=None):
    """Add bias (batch | 1, nheads | 1, seqlen, seqlen) to the scores."""
    if bias is not None:
        bias = bias.expand(len(q), q.shape[2], -1, -1)
    with emulated():
        return functional.triton_attn_func(q, k, v, bias, causal=causal)


def windowed(q, k, v, *, causal=False, window=None):
    """See the keys of a window, whose sides are counted as in FlashAttention."""
    if window is not None:
        window = tuple(q.shape[1] if side is None else side for side in window)
    with emulated():
        return functional.triton_attn_func(q, k, v, causal=causal, window_size=window)


def windows_at_the_first_tile(case):
    """Return None, or why not: a row's window should reach the first 32 keys, but for 33 rows."""
    left = None if case.window is None else case.window[0]
    if left is None or case.seqlen_q - left <= 32 or (case.seqlen_q, left) == (33, 0):
        return None
    return "the window does not reach the first tile, finding #104"


def masks_at_the_first_tile(case):
    """Return None, or why not: a mask should not hide the first 32 keys, but for 33 rows."""
    if case.bias_mask not in ("left", "window") or case.seqlen_q <= 33:
        return None
    return "the mask may hide the first tile, finding #103"


def supports(**features):
    """Return what is documented, by device: each head dim is compiled on a CPU."""
    every = dict(dtypes={torch.float16, torch.bfloat16}, causal="optional", strides=True, **features)
    return {"cpu": Supports(headdims={32}, **every), "cuda": Supports(headdims=range(16, 129), **every)}


OFFSETS = Because("finding #109: offsets of rows have 32 bits").fail("""
    tensors_beyond_2_31_elements
    offsets_need_64_bits seqlen_q=4 seqlen_k=4 headdim=32 dtype=float16
""")
HIDDEN_BY_WINDOW = Because(
    "finding #104: a row is NaN if its window does not reach the first tile",
    "seqlen_q=33 seqlen_k=33 headdim=32 dtype=float16 window=0:",
)
COMMON = dict(empty_rows="undefined", tile=(32, 32), traced=True, share={"cpu": 0.02})
IMPLS = [
    Implementation(
        name="trinix", forward=plain, supports=supports(softmax_scale=True), known_failures=OFFSETS, **COMMON
    ),
    Implementation(
        name="trinix_neutral", forward=neutral, supports=supports(softmax_scale=True), known_failures=OFFSETS, **COMMON
    ),
    Implementation(
        name="trinix_masked",
        forward=masked,
        supports=supports(bias={"matrix"}, accepts=masks_at_the_first_tile),
        known_failures=known(
            OFFSETS,
            Because("finding #108: a boolean mask is added as 0 and 1").fail("""
                calls_outside_the_promise_raise_or_are_right
                    seqlen_q=2 seqlen_k=2 headdim=32 dtype=float16 nheads=3 bias=matrix bias_mask=first_and_window
                    seed=1
            """),
            Because("finding #103: a row is NaN if the mask hides its first tile").fail("""
                biased_attention_matches_the_definition
                    batch=4 seqlen_q=33 seqlen_k=33 nheads=16 headdim=32 dtype=float16 bias=matrix bias_mask=left
                    bias_batch=4 bias_nheads=16
            """),
        ),
        **COMMON,
    ),
    Implementation(
        name="trinix_windowed",
        forward=windowed,
        supports=supports(window={"left", "right", "both"}, accepts=windows_at_the_first_tile),
        known_failures=known(
            OFFSETS, HIDDEN_BY_WINDOW.fail("ragged_sizes_match_the_definition query_sees_exactly_its_window")
        ),
        **COMMON,
    ),
]
