"""Bugs of windows and softcaps in the Numba kernels."""

from flash_attest.mutants.mutant import TRACED
from flash_attest.mutants.numba.build import planted, supporting

SIDES = {"left", "right", "both"}
WINDOWS = supporting(backward=False, window=SIDES, cross=True)
GRADIENTS = supporting(window=SIDES, cross=True)
BEHIND = "cuda.syncthreads()  # K, V and P are still being read: do not write the next ones yet"
PROBABILITY = "P[r, c] = probability(P[r, c], lse_i)  # P = exp(S - lse)"
SLOPES = "P[r, c] *= dS[column(c), row(r)]"

MUTANTS = [
    planted(
        "window_is_one_key_longer_on_the_left",
        "test_query_sees_exactly_its_window",
        "scores.py",
        (("j < first_key_of(p, i)", "j < first_key_of(p, i) - 1"),),
        "a window of `left` keys that does not count the query's own, where the caller does",
        WINDOWS,
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "keys_begin_at_the_last_query_of_the_tile",
        "test_query_sees_exactly_its_window",
        "fa2.py",
        (("first_key_of(p, i0) // N * N", "first_key_of(p, min(i0 + M, p.seqlen_q) - 1) // N * N"),),
        "the tile's last query has the last first key, so tiles that only earlier queries see are skipped",
        WINDOWS,
        dict(seqlen_q=17, seqlen_k=34),
    ),
    planted(
        "backward_leaves_the_left_edge_unmasked",
        "test_gradients_match_the_definition",
        "scores.py",
        (
            (
                "    whole = whole and first_key >= first_key_of(p, first_query + LANES * S.shape[1] - 1)\n",
                "",
            ),
        ),
        "the transposed tile is masked at the diagonal and at both ends, but not at the left edge",
        GRADIENTS,
        dict(seqlen_q=17, seqlen_k=17),
    ),
    planted(
        "queries_end_with_those_of_the_first_key",
        "test_gradients_match_the_definition",
        "backward.py",
        (("queries_of_tile(p, j0, N), M):", "queries_of_tile(p, j0, 1), M):"),),
        "the loop over queries ends with those that see the tile's first key; its last key is seen by later ones",
        GRADIENTS,
        dict(seqlen_q=17, seqlen_k=17),
    ),
    planted(
        "barrier_is_left_out_behind_the_left_edge",
        TRACED,
        "fa2.py",
        ((BEHIND, f"if j0 >= first_key_of(p, i0 + M - 1):\n                {BEHIND}"),),
        "a branch for tiles that the window cuts, and the barrier is in the other branch",
        WINDOWS,
        dict(seqlen_q=17, seqlen_k=96),
    ),
    planted(
        "slope_of_the_cap_is_missing",
        "test_gradients_match_the_definition",
        "backward.py",
        ((SLOPES, "pass"),),
        "the forward caps the scores, the backward multiplies no gradient by 1 - tanh^2",
        supporting(softcap=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "slope_of_the_cap_is_in_dv",
        "test_v_dv_equals_out_dout",
        "backward.py",
        ((PROBABILITY, PROBABILITY.replace("lse_i)", "lse_i) * (dS[column(c), row(r)] if capped else ONE)")),
         (SLOPES, "pass"), ("    LANES,\n    PAD,", "    LANES,\n    ONE,\n    PAD,")),
        "1 - tanh^2 multiplies P itself, before P^T dO",
        supporting(softcap=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
]  # fmt: skip
