"""aule-attention 0.5.0: the Triton kernels, with a causal mask that is aligned top left.

Documented are head dims up to 128. dq, and with GQA dk and dv, are summed by atomics in the dtype
of the inputs. The kernel has no path for a call without keys.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of

flash = module_of("aule_attention", "aule.triton_flash")


def attention(q, k, v, *, causal=True, softmax_scale=None, window=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q. A window has one size."""
    size = -1 if window is None else window[0]
    return flash.flash_attention_triton(q, k, v, causal=causal, scale=softmax_scale, window_size=size)


def sized(case):
    """Return None, or the reason for which the window is not one of the package's."""
    left, right = case.window or (1, 1)
    return None if left and right in (None, left) else "window_size is one number above 0"


def aule(name, known, accumulate="float32", backward=True, **supports):
    """An Implementation of the package under a name, with the laws that are known to fail."""
    forward, gradient = adapted(attention)
    common = dict(cross=True, gqa=True, softmax_scale=True, strides=True) | supports
    return Implementation(
        name=f"aule_attention{name}",
        forward=forward,
        backward=gradient if backward else None,
        layout="bhsd",
        supports={"cpu": Supports(headdims={64}, **common), "cuda": Supports(headdims=range(16, 129), **common)},
        causal_alignment="top_left",
        empty_rows="undefined",
        repeatable={"out"},
        precision=Precision(multiply="tf32_cut", accumulate=accumulate),
        tile=(64, 64),
        traced=True,
        share={"cpu": 0.05},
        known_failures=known,
    )


IMPLS = [
    aule("", {}, dtypes={torch.float32}, causal="optional"),
    aule("_half", {}, accumulate="operand", dtypes={torch.float16}, causal="optional"),
    aule("_window", {}, dtypes={torch.float32}, causal="always", window={"left"}, accepts=sized),
    aule("_band", {}, backward=False, dtypes={torch.float32}, window={"both"}, accepts=sized),
]
