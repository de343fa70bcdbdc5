"""Bugs of the Numba kernels in the backward: statistics, scale, heads that share a key head, the
sums of dq, dbias.
"""

from flash_attest.mutants.numba.build import planted, supporting

GRADIENTS = supporting(cross=True)
DOUT = "dO = matrix(shared, M * (D + PAD), M, D + PAD)"

MUTANTS = [
    planted(
        "delta_is_missing",
        "test_equal_values_give_no_score_gradient",
        "backward.py",
        (("softmax_scale * P[r, c] * (dP[r, c] - delta_i)", "softmax_scale * P[r, c] * dP[r, c]"),),
        "dS = P dP: dv is right",
        GRADIENTS,
    ),
    planted(
        "delta_is_that_of_the_first_head",
        "test_gradients_of_keys_sum_to_zero",
        "backward.py",
        (
            (
                "delta_at(delta, first + i0 + column(c), first + p.seqlen_q)",
                "delta_at(delta, i0 + column(c), p.seqlen_q)",
            ),
        ),
        "one head in one batch hides it",
        GRADIENTS,
        dict(batch=2, nheads=2, seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "scale_is_missing_in_dk",
        "test_q_dq_equals_k_dk",
        "backward.py",
        (
            ("dP[r, c] = softmax_scale * P[r, c]", "dP[r, c] = P[r, c]"),
            ("dS[column(c), row(r)] = dP[r, c]", "dS[column(c), row(r)] = softmax_scale * dP[r, c]"),
        ),
        "dS is scaled for dq alone; the scale 1 hides it",
        GRADIENTS,
        dict(seqlen_k=2, headdim=2),
    ),
    planted(
        "dv_takes_the_row_of_dout_before",
        "test_v_dv_equals_out_dout",
        "backward.py",
        (
            (
                DOUT,
                f"{DOUT}\n        late = {DOUT.partition(' = ')[2].replace('M * (D', '(M - 1) * (D')}",
            ),
            ("add_product(dV, turned, dO, M, p.headdim)", "add_product(dV, turned, late, M, p.headdim)"),
        ),
        "dV += P^T dO with dO one row late; with dout = 1 it is nearly right",
        GRADIENTS,
        dict(seqlen_q=2),
    ),
    planted(
        "dq_is_the_sum_of_one_split",
        "test_q_dq_equals_k_dk",
        "backward.py",
        (("for _ in range(written):", "for _ in range(min(1, written)):"),),
        "the keys of the other blocks add nothing to dq",
        GRADIENTS,
        dict(seqlen_k=140),
    ),
    planted(
        "splits_add_to_one_sum",
        "test_no_race_is_traced",
        "backward.py",
        (("sums_at = (split * p.batch * p.nheads * p.seqlen_q + first) * p.headdim", "sums_at = first * p.headdim"),),
        "+= of several blocks without atomics",
        GRADIENTS,
        dict(seqlen_k=140),
    ),
    planted(
        "first_query_may_be_negative",
        "test_gradients_match_the_definition",
        "scores.py",
        (("return max(0, j - p.last_diagonal)", "return j - p.last_diagonal"),),
        "x[-1] is the last element: queries before the first are taken from the end",
        supporting(causal="optional", cross=True),
        dict(seqlen_q=2, seqlen_k=33),
    ),
    planted(
        "key_gradients_are_those_of_the_first_query_head",
        "test_v_dv_equals_out_dout",
        "backward.py",
        (("for h in range(h_k * p.group, (h_k + 1) * p.group):", "for h in range(h_k * p.group, h_k * p.group + 1):"),),
        "dk and dv are not summed over the query heads that share a key head",
        supporting(gqa=True),
        dict(nheads=2),
    ),
    planted(
        "rows_without_keys_keep_their_lse",
        "test_rows_without_keys_leave_the_others_alone",
        "scores.py",
        (("    return INF if x == -INF else x", "    return x"),),
        "exp(-inf - -inf) is NaN, in dk and dv of every key",
        supporting(causal="optional", cross=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "backward_forgets_the_bias",
        "test_biased_attention_matches_the_definition",
        "attention.py",
        (
            (
                "None if bias is None else given, mask, softcap is not None, **others)",
                "None, mask, softcap is not None, **others)",
            ),
        ),
        "P is recomputed from scores without the bias",
        supporting(bias={"vector"}),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "dbias_is_scaled",
        "test_biased_attention_matches_the_definition",
        "bias_gradient.py",
        (
            (
                "probability(P[r, c], lse_i) * (dP[r, c] - delta_i)",
                "softmax_scale * probability(P[r, c], lse_i) * (dP[r, c] - delta_i)",
            ),
        ),
        "the bias is added after the scale",
        supporting(bias={"vector"}, bias_grad=True),
        dict(seqlen_q=2, seqlen_k=2, headdim=2),
    ),
    planted(
        "dbias_is_not_summed_over_heads",
        "test_biased_attention_matches_the_definition",
        "bias_gradient.py",
        (("end_head = first_head + 1 if strides.head else p.nheads", "end_head = first_head + 1"),),
        "a bias that all heads share gets the gradient of the first",
        supporting(bias={"vector"}, bias_grad=True),
        dict(nheads=2, seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "dbias_of_a_vector_is_that_of_one_group",
        "test_biased_attention_matches_the_definition",
        "bias_gradient.py",
        (("for g in range(GROUPS):", "for g in range(1):"),),
        "rows of the other groups of lanes are not added",
        supporting(bias={"vector"}, bias_grad=True, cross=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "dout_is_read_by_the_strides_of_out",
        "test_expanded_dout_equals_its_copy",
        "backward.py",
        (
            (
                "dout_at = offset(p.dout, head // p.nheads, head % p.nheads) + i * p.dout.row",
                "dout_at = offset(p.out, head // p.nheads, head % p.nheads) + i * p.out.row",
            ),
        ),
        "delta is computed as if dout were contiguous, but autograd passes expanded ones",
        supporting(strides=True),
        dict(seqlen_q=2, nheads=2, seqlen_k=2),
    ),
]
