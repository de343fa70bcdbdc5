"""Bugs of the Numba kernels that show in the forward: the online softmax, masks, tails, heads,
shared memory.
"""

import torch

from flash_attest.mutants.mutant import TRACED
from flash_attest.mutants.numba.build import FORWARD, planted, supporting

SHIFTED = "S[r, c] = libdevice.fast_expf(S[r, c] - finite(m_new))"
FORWARD_MASK = """diagonals(sizes, causal, window, self.alignment)
        p = problem_of(q, k, v, None if bias is None else given, mask, softcap is not None, out=out)"""
SHARED_BYTES = "return 4 * ((M + 2 * N) * (D + PAD) + M * (N + PAD))"

MUTANTS = [
    planted(
        "lse_is_the_row_sum",
        "test_lse_matches_the_definition",
        "fa2.py",
        (("-INF if dead else m[r] + libdevice.logf(total)", "total"),),
        "l is stored where lse belongs: out is right, and a backward would compute exp(S - l)",
        FORWARD,
    ),
    planted(
        "shared_memory_is_passed_in_elements",
        TRACED,
        "fa2.py",
        ((SHARED_BYTES, SHARED_BYTES.replace("4 * ", "")),),
        "the launch takes bytes; a quarter of the memory is allocated, and on a GPU other blocks' tiles are overwritten",
        FORWARD,
    ),
    planted(
        "shared_memory_is_a_row_short",
        TRACED,
        "fa2.py",
        ((SHARED_BYTES, SHARED_BYTES.replace("M * (N + PAD)", "(M - 1) * (N + PAD)")),),
        "the last row of P lies behind the end: a GPU rounds the size up, so it is right until a tile fits exactly",
        FORWARD,
        dict(seqlen_q=16, seqlen_k=2),
    ),
    planted(
        "scores_are_not_shifted",
        "test_huge_scores_match_the_definition",
        "fa2.py",
        ((SHIFTED, "S[r, c] = libdevice.fast_expf(S[r, c])"),),
        "exp(S) overflows from 88 on",
        supporting(backward=False),
    ),
    planted(
        "out_is_not_rescaled",
        "test_order_of_keys_does_not_matter",
        "fa2.py",
        (("O[r, n] *= alpha", "O[r, n] *= ONE"),),
        "alpha is missing from O: harmless as long as the first tile has the row maximum",
        FORWARD,
        dict(seqlen_k=64),
    ),
    planted(
        "sum_is_not_rescaled",
        "test_lse_matches_the_definition",
        "fa2.py",
        (("l[r] *= alpha", "l[r] *= ONE"),),
        "alpha is missing from l",
        FORWARD,
        dict(seqlen_k=64),
    ),
    planted(
        "first_tile_that_is_hidden_gives_nan",
        "test_infinite_bias_hides_exactly_its_keys",
        "scores.py",
        (("return ZERO if maximum == -INF else maximum", "return maximum"),),
        "-inf - -inf is NaN as long as a row has seen no key",
        supporting(backward=False, bias={"vector"}, cross=True),
        dict(seqlen_q=2, seqlen_k=64),
    ),
    planted(
        "dead_rows_are_divided_by_zero",
        "test_rows_without_keys_give_zero",
        "fa2.py",
        (("factor = ZERO if dead else ONE / total", "factor = ONE / total"),),
        "0 / 0 in a row that sees no key",
        supporting(backward=False, causal="optional", cross=True),
        dict(seqlen_q=2),
    ),
    planted(
        "last_tile_of_keys_is_skipped",
        "test_padding_keys_count_nothing",
        "fa2.py",
        (
            (
                "keys_of(p, min(i0 + M, p.seqlen_q) - 1), N)",
                "keys_of(p, min(i0 + M, p.seqlen_q) - 1) // N * N, N)",
            ),
        ),
        "the number of tiles is rounded down",
        FORWARD,
    ),
    planted(
        "keys_end_at_the_first_query_of_the_tile",
        "test_alignment_is_as_declared",
        "fa2.py",
        (("keys_of(p, min(i0 + M, p.seqlen_q) - 1)", "keys_of(p, i0)"),),
        "the loop over keys ends with those that the first query of the tile sees",
        supporting(backward=False, causal="optional", cross=True),
        dict(seqlen_q=33, seqlen_k=33),
    ),
    planted(
        "causal_mask_is_one_key_off",
        "test_query_sees_exactly_its_prefix",
        "scores.py",
        (("i + p.last_diagonal + 1))", "i + p.last_diagonal))"),),
        "j < i for j <= i",
        supporting(backward=False, causal="optional"),
    ),
    planted(
        "diagonal_tile_is_taken_for_clear",
        "test_hidden_keys_change_no_bit",
        "scores.py",
        (
            (
                "if p.has_bias or not whole or first_key + LANES * S.shape[1] > keys_of(p, first_query):",
                "if p.has_bias or not whole or first_key + LANES * S.shape[1] > p.seqlen_k:",
            ),
        ),
        "tiles at the end are masked, those at the diagonal are not",
        supporting(backward=False, causal="optional"),
        dict(seqlen_q=64, seqlen_k=64),
    ),
    planted(
        "key_head_is_taken_modulo",
        "test_out_matches_the_definition",
        "fa2.py",
        (("matrix(k, offset(p.k, b, h // p.group)", "matrix(k, offset(p.k, b, h % (p.nheads // p.group))"),),
        "query head h reads key head h % nheads_k, but the right head of v; a single key head hides it",
        supporting(backward=False, gqa=True),
        dict(nheads=6, seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "sum_is_that_of_one_lane",
        "test_padding_keys_count_nothing",
        "fa2.py",
        (("total = sum_of_lanes(l[r])", "total = l[r]"),),
        "each lane divides by the sum of its own columns",
        FORWARD,
        dict(seqlen_k=2),
    ),
    planted(
        "maximum_is_that_of_half_the_lanes",
        "test_huge_scores_match_the_definition",
        "tiles.py",
        (
            (
                "    for other in (8, 4, 2, 1):\n        x = libdevice.fmaxf",
                "    for other in (4, 2, 1):\n        x = libdevice.fmaxf",
            ),
        ),
        "a shuffle is missing: the halves of a row are shifted by other maxima, and alpha differs",
        supporting(backward=False),
        dict(seqlen_q=9, seqlen_k=9),
    ),
    planted(
        "causal_mask_starts_at_the_top_left",
        "test_alignment_is_as_declared",
        "attention.py",
        ((FORWARD_MASK, FORWARD_MASK.replace("self.alignment", '"top_left"')),),
        "the alignment of FlashAttention before 2.1",
        supporting(backward=False, causal="optional", cross=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "scale_zero_is_taken_for_the_default",
        "test_scale_zero_is_q_zero",
        "attention.py",
        (
            (
                "q.shape[-1] ** -0.5 if softmax_scale is None else float(softmax_scale)",
                "float(softmax_scale or q.shape[-1] ** -0.5)",
            ),
        ),
        "`softmax_scale or default`",
        supporting(backward=False, softmax_scale=True),
    ),
    planted(
        "scale_is_applied_after_the_maximum",
        "test_negative_scale_is_negated_q",
        "fa2.py",
        (
            ("m_tile = libdevice.fmaxf(m_tile, S[r, c])", "m_tile = libdevice.fmaxf(m_tile, S[r, c] / softmax_scale)"),
            ("maximum_of_lanes(m_tile))", "maximum_of_lanes(m_tile) * softmax_scale)"),
        ),
        "the maximum of the unscaled scores, scaled afterwards: with a negative scale it is the minimum, and exp overflows",
        supporting(backward=False, softmax_scale=True),
        dict(seqlen_k=64),
    ),
    planted(
        "bias_of_every_head_is_that_of_the_first",
        "test_bias_picks_its_key",
        "fa2.py",
        (("offset(p.bias, b, h)", "offset(p.bias, b, 0)"),),
        "with one head in the bias it is right",
        supporting(backward=False, bias={"vector"}),
        dict(nheads=2, seqlen_k=2, seqlen_q=2),
    ),
    planted(
        "float16_is_accumulated_in_float16",
        "test_out_matches_the_definition",
        "fa2.py",
        (
            ("O = cuda.local.array((TM, TD), float32)", "O = cuda.local.array((TM, TD), float16)"),
            (
                "from numba.cuda import libdevice",
                "from numba.cuda import libdevice\nfrom numba.cuda.types import float16",
            ),
        ),
        "each sum of O is rounded to 11 bits, once for each key",
        supporting(torch.float16, backward=False, cross=True),
        dict(nheads=3, seqlen_k=4, dtype=torch.float16),
    ),
    planted(
        "bfloat16_is_cut_off",
        "test_out_matches_the_definition",
        "elements.py",
        (("return int16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)", "return int16(bits >> 16)"),),
        "the upper half of a float32's bits, truncated instead of rounded",
        supporting(torch.bfloat16, backward=False),
        dict(seqlen_q=2, seqlen_k=2, dtype=torch.bfloat16),
    ),
]
