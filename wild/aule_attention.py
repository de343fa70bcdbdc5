"""aule-attention 0.5.0: the Triton kernels, with a causal mask that is aligned top left.

Documented are head dims up to 128. dq, and with GQA dk and dv, are summed by atomics in the dtype
of the inputs. The kernel has no path for a call without keys.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

flash = module_of("aule_attention", "aule.triton_flash")


def attention(q, k, v, *, causal=False, softmax_scale=None, window=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q. A window has one size."""
    size = -1 if window is None else window[0]
    return flash.flash_attention_triton(q, k, v, causal=causal, scale=softmax_scale, window_size=size)


def causal(q, k, v, **keywords):
    """Return what attention returns with causal."""
    return attention(q, k, v, causal=True, **keywords)


def sized(case):
    """Return None, or the reason for which the window is not one of the package's."""
    left, right = case.window or (1, 1)
    return None if left and right in (None, left) else "window_size is one number above 0"


def aule(name, function, known_failures, backward=True, **supports):
    """Return an Implementation of the package, with the laws that are known to fail."""
    forward, gradient = adapted(function)
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
        precision=Precision(multiply="tf32_cut"),
        tile=(64, 64),
        traced=True,
        share={"cpu": 0.02},
        known_failures=known(OFFSETS, *known_failures),
    )


OFFSETS = Because("finding #133: offsets have 32 bits").fail("tensors_beyond_2_31_elements")
QUERIES = "finding #4: rows past the last tile of keys are NaN"
BACKWARD = "finding #3: the backward ignores the window"
SHORT = "seqlen_q=3 seqlen_k=2 headdim=64 dtype=float32 causal=True window=1:"
FOUR = "batch=2 seqlen_q=4 seqlen_k=4 headdim=64 dtype=float32"
MORE_QUERIES = "seqlen_q=65 seqlen_k=1 headdim=64 dtype=float32 causal=True"
MIDDLE = "finding #2: a window ends by the middle of the query tile"
# Only calls with a tile of queries past the last key, or with a small window, show these, and a law
# may draw none.
OF_DRAWN_CASES = """
    first_call_decides_nothing huge_scores_match_the_definition out_matches_the_definition
    row_that_sees_one_key_copies_it single_key_is_copied tiny_scores_match_the_definition
"""
BATCHES = "finding #6: k and v of fewer batches are accepted"
OF_BATCHES = Because(BATCHES, on="cuda").fail("calls_outside_the_promise_raise_or_are_right")

IMPLS = [
    aule(
        "",
        attention,
        [
            Because(QUERIES, MORE_QUERIES).fail("""
                equal_values_give_no_score_gradient
                winning_key_is_copied regime=selecting
            """),
            Because(QUERIES, on="cuda", every_run=False).fail(f"""
                {OF_DRAWN_CASES} out_averages_exactly_its_prefix answers_follow_the_values other_calls_do_not_matter
                ragged_sizes_match_the_definition gradients_match_the_definition gradients_of_keys_sum_to_zero
                no_dout_gives_no_gradient q_dq_equals_k_dk v_dv_equals_out_dout
            """),
            Because("finding #5: the stride of the one head is taken for the stride of the batch", FOUR).fail(
                "any_layout_equals_the_contiguous_one layout=size_one"
            ),
            Because(BATCHES, FOUR).fail("calls_outside_the_promise_raise_or_are_right"),
        ],
        dtypes={torch.float32},
        causal="optional",
    ),
    aule(
        "_window",
        causal,
        [
            Because(QUERIES, MORE_QUERIES).fail("""
                out_averages_exactly_its_prefix equal_values_give_no_score_gradient no_dout_gives_no_gradient
                q_dq_equals_k_dk
            """),
            Because(QUERIES, on="cuda", every_run=False).fail(
                f"{OF_DRAWN_CASES} v_dv_equals_out_dout winning_key_is_copied scale_zero_is_q_zero"
            ),
            Because(BACKWARD, SHORT).fail("""
                ragged_sizes_match_the_definition regime=shifted_down
                answers_follow_the_values regime=shifted_down
                gradients_match_the_definition regime=shifted_down
                gradients_of_keys_sum_to_zero seqlen_k=3
            """),
            Because(BACKWARD, on="cuda", every_run=False).fail("""
                keys_beyond_the_window_change_no_bit other_calls_do_not_matter
            """),
            Because("finding #1: rows that see no key of their first tile are NaN").fail("""
                query_sees_exactly_its_window
                    seqlen_q=128 seqlen_k=128 headdim=64 dtype=float32 causal=True window=16:
            """),
            OF_BATCHES,
        ],
        dtypes={torch.float32},
        causal="always",
        window={"left"},
        accepts=sized,
    ),
    aule(
        "_band",
        attention,
        [
            Because(MIDDLE).fail(
                "query_sees_exactly_its_window seqlen_q=1 seqlen_k=1 headdim=64 dtype=float32 window=1:1"
            ),
            Because(MIDDLE, on="cuda", every_run=False).fail(f"""
                {OF_DRAWN_CASES} answers_follow_the_values other_calls_do_not_matter ragged_sizes_match_the_definition
                single_query_matches_the_definition
            """),
            OF_BATCHES,
        ],
        backward=False,
        dtypes={torch.float32},
        window={"both"},
        accepts=sized,
    ),
]
