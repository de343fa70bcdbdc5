"""Bugs of the softcap: its place, its value, its derivative: docs/why/bugs.md#softmax-and-lse."""

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.masks import RECOMPUTED

SCORES = "    s = scale * (qi @ kj.mT)"
TANH = "t = torch.tanh(s / softcap)"
CAPPED = "s, slope = softcap * t, 1 - t * t"
CAP = f"    slope = None\n    if softcap is not None:\n        {TANH}\n        {CAPPED}\n"
MASK = "    j = torch.arange(j0, j0 + BLOCK_N, device=s.device)"
DR = "dr = ds if softcap is None else ds * slope"

MUTANTS = [
    planted(
        name="scores_are_multiplied_by_their_tanh",
        law="test_capped_scores_are_the_cap",
        edits=((TANH, "t = torch.tanh(s)"), (CAPPED, CAPPED.replace("softcap", "s"))),
        smallest=ONE,
        story="s tanh(s) in place of softcap tanh(s / softcap): the function that modifies scores gets no cap",
    ),
    planted(
        name="cap_is_applied_before_the_scale",
        law="test_capped_scores_are_the_cap",
        edits=((SCORES, "    s = qi @ kj.mT"), (CAPPED, CAPPED.replace("softcap", "scale * softcap"))),
        smallest=ONE | dict(headdim=2),
        story="scale and cap are folded into one constant for the plain kernel, in the wrong order",
    ),
    planted(
        name="cap_is_kept_from_the_first_call",
        law="test_capped_scores_are_the_cap",
        edits=(
            ('INF = float("inf")\n', 'INF = float("inf")\nKEPT = {}\n'),
            (
                "    if softcap is not None:",
                '    if softcap is not None:\n        softcap = KEPT.setdefault("softcap", softcap)',
            ),
        ),
        smallest=ONE,
        story="the cap is a constant of the compiled kernel, and no part of its key in the cache",
    ),
    planted(
        name="cap_is_truncated_to_an_integer",
        law="test_capped_scores_are_the_cap",
        edits=(("    if softcap is not None:", "    if softcap is not None:\n        softcap = float(int(softcap))"),),
        smallest=ONE,
        story="softcap is an int in a config or in a kernel's signature: 50 and 30 are right, 2.5 is 2",
    ),
    planted(
        name="scores_are_cut_at_the_cap",
        law="test_out_matches_the_definition",
        edits=(
            (TANH, "t = (s / softcap).clamp(-1, 1)"),
            (CAPPED, CAPPED.replace("1 - t * t", "(t.abs() < 1).float()")),
        ),
        smallest=ONE | dict(seqlen_k=2),
        story="a clamp in place of tanh: equal where scores are small, and where they are large",
    ),
    planted(
        name="tanh_is_approximate_and_not_declared",
        law="test_out_matches_the_definition",
        edits=((TANH, TANH.replace("torch.tanh(s / softcap)", "torch.tanh(s / softcap) * (1 + 2**-11)")),),
        smallest=ONE | dict(seqlen_k=2),
        story="tanh.approx.f32 has a relative error of 2^-11, and precision does not say so",
    ),
    planted(
        name="bias_is_capped_too",
        law="test_biased_attention_matches_the_definition",
        edits=((CAP, ""), (MASK, CAP + MASK)),
        smallest=ONE | dict(seqlen_k=2),
        story="the bias is added to the scores before the softcap",
    ),
    planted(
        name="cap_is_applied_after_the_mask",
        law="test_out_matches_the_definition",
        edits=((CAP, ""), ("    return s, slope\n", CAP + "    return s, slope\n")),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="tanh(-inf) is -1: a hidden key has the score -softcap, not -inf",
    ),
    planted(
        name="derivative_of_the_cap_is_left_out",
        law="test_gradients_match_the_definition",
        edits=((DR, "dr = ds"),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="dR = dS without 1 - tanh^2, which random scores and a cap of 30 hardly show",
    ),
    planted(
        name="derivative_of_the_cap_is_not_squared",
        law="test_gradients_match_the_definition",
        edits=((CAPPED, CAPPED.replace("t * t", "t.abs()")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="1 - |tanh| in place of 1 - tanh^2",
    ),
    planted(
        name="backward_ignores_the_cap",
        law="test_gradients_match_the_definition",
        edits=(
            (DR, "dr = ds"),
            (RECOMPUTED, RECOMPUTED.replace("softcap", "None")),
        ),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="P is recomputed without the cap, from an lse that has it",
    ),
    planted(
        name="dbias_is_multiplied_by_the_derivative_of_the_cap",
        law="test_biased_attention_matches_the_definition",
        edits=(("    add_bias_tile(dbias, i0, j0, ds,", "    add_bias_tile(dbias, i0, j0, dr,"),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="dbias is stored from dR, which is dS no more once there is a cap",
    ),
]
