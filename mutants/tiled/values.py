"""Bugs of values that are narrower or wider than keys: docs/why/bugs.md#boundaries."""

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.softmax import ACC, SCALE_BACKWARD, SCALE_FORWARD

DV = "        store_tile(dv.transpose(1, 2), j0, sum_query_heads(dvj, nheads_k))"
DK = "        dkj = dkj * scale"
DELTA = "delta = (dout.float() * out.float())"
DP = "dp = doi @ vj.mT"

MUTANTS = [
    planted(
        name="columns_of_v_wrap_around_at_headdim",
        law="test_columns_of_v_are_their_own",
        edits=((ACC, ACC.replace("@ vj", "@ vj[..., torch.arange(v.shape[3]) % headdim]")),),
        smallest=ONE | dict(headdim_v=3),
        story="v is loaded with the columns of a tile of k: later columns of out are the first ones again",
    ),
    planted(
        name="columns_of_v_beyond_headdim_are_left_out",
        law="test_out_matches_the_definition",
        edits=((ACC, ACC + "\n            acc[..., headdim:] = 0"),),
        smallest=ONE | dict(headdim_v=3),
        story="the loop over the columns of v ends at the headdim of q and k",
    ),
    planted(
        name="columns_of_dv_beyond_headdim_are_not_stored",
        law="test_gradients_match_the_definition",
        edits=((DV, "        dvj[..., headdim:] = 0\n" + DV),),
        smallest=ONE | dict(headdim_v=3),
        story="dv is stored with the mask of dk",
    ),
    planted(
        name="columns_of_dk_beyond_headdim_v_are_not_stored",
        law="test_gradients_match_the_definition",
        edits=((DK, "        dkj[..., v.shape[3] :] = 0\n" + DK),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2, headdim=3, headdim_v=1),
        story="dk is stored with the mask of dv",
    ),
    planted(
        name="scale_is_that_of_headdim_v",
        law="test_out_matches_the_definition",
        edits=tuple(
            (old, old.replace("headdim**-0.5", "v.shape[3] ** -0.5")) for old in (SCALE_FORWARD, SCALE_BACKWARD)
        ),
        smallest=ONE | dict(seqlen_k=2, headdim=3, headdim_v=3),
        story="the default softmax_scale is taken from the shape of v",
    ),
    planted(
        name="delta_sums_the_columns_of_headdim",
        law="test_gradients_match_the_definition",
        edits=((DELTA, DELTA + "[..., :headdim]"),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2, headdim_v=3),
        story="rowsum(dO * O) ends at the headdim of q and k",
    ),
    planted(
        name="dp_sums_the_columns_of_headdim",
        law="test_gradients_match_the_definition",
        edits=((DP, "dp = doi[..., :headdim] @ vj[..., :headdim].mT"),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2, headdim_v=3),
        story="the inner loop of dO V^T is as long as the one of Q K^T",
    ),
]
