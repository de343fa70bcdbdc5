"""flash-sparse-attn 2.0.6: its dense and sparse functions in Triton.

No configuration is searched: is_autotune=False, the documented way to fixed tiles of 64. The
package imports triton_kernels, which its README says to install. Attention does not use it, so it
is imported with empty modules of that name where there is none. The kernels that the package keeps
are dropped before each call, as they are wrong for other lengths and addresses (findings #124 and
#125).
"""

import importlib.util
import sys
from unittest import mock

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because

ABSENT = () if importlib.util.find_spec("triton_kernels") else ("", ".matmul_ogs", ".numerics")
STUBS = {f"triton_kernels{name}": mock.MagicMock() for name in ABSENT}
sys.modules |= STUBS
try:
    package = module_of("flash_sparse_attn", "flash_sparse_attn")
finally:  # also if it is not installed
    for name in STUBS:
        del sys.modules[name]


def drop_kernels():
    """Make the package compile a kernel for each call, or take it from Triton's own cache."""
    for name, module in list(sys.modules.items()):
        if name.startswith("flash_sparse_attn.ops.triton."):
            for value in vars(module).values():
                if type(value).__name__ == "CachedKernel":
                    value._cache.clear()


def dense(q, k, v, *, causal=False, softmax_scale=None):
    """Call it with (batch, seqlen, nheads, headdim) x 3 -> out, lse (batch, nheads, seqlen_q)."""
    drop_kernels()
    return package.flash_dense_attn_func(q, k, v, causal, softmax_scale, is_autotune=False, return_lse=True)


forward, backward = adapted(dense)


def near_scores(case):
    """Refuse empty tensors, low scores, for which dq is NaN (finding #47), and a scale below 0."""
    if case.regime in ("shifted_down", "uneven", "rising", "large"):
        return "scores should not be far below 0"
    if case.softmax_scale is not None and case.softmax_scale <= 0:
        return "a scale of 0 or below is finding #48"
    return None if case.batch * case.seqlen_q * case.seqlen_k else "there is no query or no key"


FIELDS = {"dtypes": {torch.float16, torch.bfloat16}, "causal": "optional", "softmax_scale": True, "cross": True}
FIELDS |= {"gqa": True, "strides": True, "accepts": near_scores}
IMPLS = [
    Implementation(
        name="flash_sparse_attn",
        forward=forward,
        backward=backward,
        lse="natural",
        supports={"cuda": Supports(**FIELDS, headdims=range(16, 257, 16)), "cpu": Supports(**FIELDS, headdims={32})},
        outside="undefined",
        repeatable={"out", "lse", "dk", "dv"},  # dq is summed by atomics
        tile=(64, 64),
        traced=True,
        share={"cpu": 0.04},
        known_failures=Because(
            "finding #48: NaN with a scale of 0 or below", "seqlen_q=1 seqlen_k=1 headdim=32 dtype=float16"
        ).fail("scale_zero_is_q_zero softmax_scale=0.0"),
    )
]
