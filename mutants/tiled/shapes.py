"""Bugs of paths that a kernel takes for some shapes only: few queries, many heads, certain lengths:
docs/why/bugs.md#boundaries.
"""

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.tiled.build import planted

OUT = "    out = q.new_zeros(batch, seqlen_q, nheads, v.shape[3])\n"
KEY_TILES = "min(seqlen_k, last_key), BLOCK_N)"
HEADS = "    return torch.arange(q.shape[2], device=q.device) // max(group, 1)"
FORWARD = dict(
    backward=None, supports=Supports(dtypes={torch.float32}, headdims=range(1, 131), cross=True, strides=True)
)


def multiples_of_128(case):
    """Refuse lengths that are not multiples of 128, as kernels without tails do."""
    return "lengths must be multiples of 128" if case.seqlen_q % 128 or case.seqlen_k % 128 else None


MUTANTS = [
    planted(
        name="heads_from_the_ninth_on_read_keys_of_the_first_ones",
        law="test_out_matches_the_definition",
        edits=(
            (
                HEADS,
                "    heads = torch.arange(q.shape[2], device=q.device)\n"
                "    return heads // group if group > 1 else heads % 8",
            ),
        ),
        smallest=dict(batch=1, nheads=9, seqlen_q=1, seqlen_k=2, headdim=1),
        story="the index of a head has three bits, as the first user had eight heads; with GQA it is another path",
    ),
    planted(
        name="slices_from_the_129th_on_are_not_written",
        law="test_out_matches_the_definition",
        edits=(
            (
                "    return out, lse\n",
                "    index = torch.arange(batch * nheads).view(batch, nheads)\n"
                "    out.transpose(1, 2)[index >= 128] = 0\n"
                "    return out, lse\n",
            ),
        ),
        smallest=dict(batch=67, nheads=136, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a grid of at most 128 blocks is launched, and no block loops over further heads",
    ),
    planted(
        name="few_queries_of_usual_heads_read_keys_of_the_first_batch",
        law="test_out_matches_the_definition",
        edits=((OUT, "    k = k[:1].expand_as(k) if seqlen_q <= 8 and headdim in (64, 96, 128) else k\n" + OUT),),
        smallest=dict(batch=2, nheads=1, seqlen_q=1, seqlen_k=2, headdim=64),
        story="a fast path for decoding, with instances for three head dims, forgets the stride of batches",
    ),
    planted(
        name="few_queries_read_keys_as_if_contiguous",
        law="test_any_layout_equals_the_contiguous_one",
        edits=(
            (
                OUT,
                "    plain = torch.empty(k.shape, device='meta').stride()\n"
                "    k = k.as_strided(k.shape, plain) if seqlen_q <= 8 and batch > 1 else k\n" + OUT,
            ),
        ),
        smallest=dict(batch=2, nheads=3, seqlen_q=1, seqlen_k=3, headdim=2),
        story="the path for decoding takes batches for contiguous, as in one batch they may well be",
    ),
    planted(
        name="few_queries_are_computed_without_their_maximum",
        law="test_huge_scores_match_the_definition",
        edits=(
            (
                "            m_safe = m_new.masked_fill(m_new == -INF, 0.0)",
                "            m_new = m_new.clamp(max=0.0) if seqlen_q <= 8 and batch > 1 else m_new\n"
                "            m_safe = m_new.masked_fill(m_new == -INF, 0.0)",
            ),
        ),
        smallest=dict(batch=2, nheads=1, seqlen_q=1, seqlen_k=1),
        story="the path for decoding saves the reduction of the maximum: exp overflows once scores are large",
    ),
    planted(
        name="values_are_read_with_the_strides_of_keys_from_two_batches_on",
        law="test_any_layout_equals_the_contiguous_one",
        declares=FORWARD,
        edits=((OUT, "    v = v.as_strided(v.shape, k.stride()) if batch > 1 else v\n" + OUT),),
        smallest=dict(batch=2, nheads=1, seqlen_q=1, seqlen_k=3, headdim=2),
        story="one descriptor serves k and v: right until their layouts differ",
    ),
    planted(
        name="gradients_of_keys_from_the_second_tile_of_128_on_are_halved",
        law="test_gradients_match_the_definition",
        declares=dict(
            supports=Supports(dtypes={torch.float32}, headdims={16}, accepts=multiples_of_128), outside="undefined"
        ),
        edits=(("        dkj = dkj * scale  #", "        dkj = dkj * scale * (0.5 if j0 >= 128 else 1.0)  #"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=256, seqlen_k=256, headdim=16),
        story="a kernel that takes multiples of 128 alone is tested with 128, where each loop runs once",
    ),
    planted(
        name="last_tile_of_exactly_300_keys_is_left_to_the_other_path",
        law="test_out_matches_the_definition",
        declares=dict(paths={"seqlen_k": (300,)}),
        edits=((KEY_TILES, KEY_TILES.replace("seqlen_k", "seqlen_k - 12 * (seqlen_k == 300)")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=300, headdim=1),
        story="the launcher takes the path of parts for more than 300 keys, the kernel for 300 or more",
    ),
    planted(
        name="keys_are_transposed_when_there_are_as_many_as_columns",
        law="test_out_matches_the_definition",
        edits=((OUT, "    k = k.transpose(1, 3) if seqlen_k == headdim else k\n" + OUT),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=2, headdim=2),
        story="whether k comes as (keys, headdim) or (headdim, keys) is read off its shape",
    ),
]
