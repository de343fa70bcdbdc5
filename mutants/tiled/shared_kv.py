"""Bugs of a v that is the first columns of k, in the same memory: docs/why/bugs.md#memory."""

from flash_attest.mutants.mutant import CONTRACT, ONE
from flash_attest.mutants.tiled.build import planted

DEFINITION = "test_out_matches_the_definition"
READ_Q = "    batch, seqlen_q, nheads, headdim = q.shape\n    seqlen_k = k.shape[1]\n"
SHARED = "    shared = v.data_ptr() == k.data_ptr() and k.numel() and v.stride() == k.stride()\n"

MUTANTS = [
    planted(
        name="shared_values_are_prepared_in_place",
        law=CONTRACT,
        edits=((READ_Q, READ_Q + SHARED + "    v = v.mul_(2.0).mul_(0.5).add_(1.0) if shared else v\n"),),
        smallest=ONE,
        story="v is prepared in its own memory, which is k's, and not restored",
    ),
    planted(
        name="shared_values_have_rows_of_their_own_length",
        law=DEFINITION,
        edits=(
            (
                READ_Q,
                READ_Q + SHARED + "    v = v.as_strided(v.shape, torch.empty(v.shape).stride()) if shared else v\n",
            ),
        ),
        smallest=ONE | dict(nheads=2, nheads_k=2, seqlen_k=2, headdim=64),
        story="the rows of v are headdim_v apart where v is contiguous; in a cache of k they are headdim apart",
    ),
    planted(
        name="shared_values_are_the_last_columns",
        law=DEFINITION,
        edits=((READ_Q, READ_Q + SHARED + "    v = k[..., k.shape[3] - v.shape[3] :] if shared else v\n"),),
        smallest=ONE | dict(headdim=64),
        story="the rotary columns come first in one library, and last in another",
    ),
    planted(
        name="scale_of_the_keys_scales_shared_values",
        law=DEFINITION,
        edits=((READ_Q, READ_Q + SHARED + "    v = v * softmax_scale if shared and softmax_scale else v\n"),),
        smallest=ONE | dict(headdim=3),
        story="k is multiplied by softmax_scale while it is loaded, and its first columns are used again as v",
    ),
]
