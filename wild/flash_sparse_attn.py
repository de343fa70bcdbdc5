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
from flash_attest.wild.known import Because, known

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
    """Refuse empty tensors, and low scores, for which dq is NaN (finding #47)."""
    if case.regime in ("shifted_down", "uneven", "rising"):
        return "scores should not be far below 0"
    return None if case.batch * case.seqlen_q * case.seqlen_k else "there is no query or no key"


def declare(name, *, known_failures=(), **supports):
    """Return the record of one set of calls."""
    fields = {"causal": "optional", "softmax_scale": True, "dtypes": {torch.float16, torch.bfloat16}, **supports}
    return Implementation(
        name=f"flash_sparse_attn{name}",
        forward=forward,
        backward=backward,
        lse="natural",
        supports={
            "cuda": Supports(**fields, headdims=range(16, 257, 16)),
            "cpu": Supports(**fields, headdims={32}),
        },
        outside="undefined",
        repeatable={"out", "lse", "dk", "dv"},  # dq is summed by atomics
        tile=(64, 64),
        traced=True,
        share={"cpu": 0.04},
        known_failures=known(*known_failures),
    )


SCALE = "finding #48: NaN with a scale of 0 or below"
ONE = "seqlen_q=1 seqlen_k=1 headdim=32 dtype=float16"
IMPLS = [
    declare("", cross=True, gqa=True, strides=True, softmax_scale="positive", accepts=near_scores),
    declare(
        "_any_scale",
        accepts=near_scores,
        known_failures=[
            Because(SCALE, f"{ONE} causal=True softmax_scale=-0.25").fail("""
                row_that_sees_one_key_copies_it ragged_sizes_match_the_definition out_matches_the_definition
                q_dq_equals_k_dk
            """),
            Because(SCALE, ONE).fail("""
                huge_scores_match_the_definition softmax_scale=-1.0 regime=shifted_up
                tiny_scores_match_the_definition softmax_scale=-0.0009765625 regime=flat
                scale_zero_is_q_zero softmax_scale=0.0
                v_dv_equals_out_dout softmax_scale=-0.25
                negative_scale_is_negated_q softmax_scale=0.5
            """),
        ],
    ),
]
