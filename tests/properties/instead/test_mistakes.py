"""Each mistake of the table is named, and no other; a right kernel has no mistake to name."""

import re
from collections import Counter
from functools import cache

import pytest
import torch

from flash_attest.mutants import ALL
from flash_attest.mutants.mutant import build
from flash_attest.mutants.tiled.masks import CAUSAL
from flash_attest.properties.instead.table import TABLE
from tests.properties.instead.stand_ins import answer_of_case, edited, making, said, said_of

# Plain cases: the first one that a mistake changes is tried. All are longer than a tile of 16.
CASES = (
    "seqlen_q=35 seqlen_k=39 headdim=7 nheads=2",
    "seqlen_q=35 seqlen_k=39 headdim=7 causal=True",
    "seqlen_q=35 seqlen_k=39 headdim=7 softmax_scale=-0.3",
    "seqlen_q=21 seqlen_k=23 headdim=7 nheads=6 nheads_k=3 batch=2",
    "seqlen_q=21 seqlen_k=21 headdim=7 nheads=2 batch=3 bias=matrix bias_batch=3 bias_nheads=2",
    "seqlen_q=40 seqlen_k=21 headdim=7 nheads=2 batch=3 bias=vector",
    "seqlen_q=131 seqlen_k=135 headdim=7",
    "seqlen_q=18 seqlen_k=18 headdim=130",
    "seqlen_q=131 seqlen_k=5 headdim=7 bias=vector",
    "seqlen_q=35 seqlen_k=39 headdim=7 nheads=2 bias=boolean_matrix bias_mask=right bias_nheads=2",
    "seqlen_q=21 seqlen_k=23 headdim=7 bias=boolean_matrix bias_mask=window",
    "seqlen_q=35 seqlen_k=39 headdim=7 window=3:2",
    "seqlen_q=35 seqlen_k=39 headdim=7 window=3:2 causal=True",
    "seqlen_q=35 seqlen_k=39 headdim=7 softcap=2.0",
    "seqlen_q=35 seqlen_k=39 headdim=7 softcap=2.0 bias=matrix",
    "seqlen_q=35 seqlen_k=39 headdim=7 nheads=4 nheads_k=2 sinks=count",
    "seqlen_q=35 seqlen_k=39 headdim=7 nheads=3 batch=3 sinks=spread dlse=True",
    "seqlen_q=35 seqlen_k=39 headdim=7 nheads=4 nheads_k=2 sinks=spread softcap=2.0",
    "seqlen_q=35 seqlen_k=39 headdim=7 headdim_v=13 dlse=True",
    "seqlen_q=35 seqlen_k=39 headdim=7 headdim_v=130",
    "seqlen_q=35 seqlen_k=39 headdim=7 hidden=documents hidden_block=8:24",
)
# Mistakes that are alike in the case that shows the one: a group has two heads, and 7 is padded to
# 8.
PADDED = "of the default scale for a head dim that is padded to a "
ALSO = {
    "group in": "with a factor of nheads // nheads_k, or with a factor of 2",
    "mean of group in": "of the mean of a group of heads, not of its sum, or with a factor of 1/2",
    "scale of a multiple of 8": f"{PADDED}multiple of #, or {PADDED}power of two",
    "scale of the next power": f"{PADDED}multiple of #, or {PADDED}power of two",
}


# Each has an entry beside it that is made in the same way.
ALIKE = {
    "window left shorter", "window right longer", "window right shorter", "window swapped", "sink of head 0",
    "sink of the head modulo", "sink capped", "sink scaled", "raw sink without maximum", "dsink of the last batch",
    "dlse times ln 2", "dlse over ln 2", "bias of head 0", "bias of batch 0", "bias of query 0", "bias of the next batch",
    "bias of the next key", "bias in float16", "k of head 0", "v of head 0", "k of batch 0", "v of batch 0",
    "heads of k in the other order", "heads of v in the other order", "delta of the query before", "delta of head 0",
    "delta of batch 0", "lse of head 0", "lse of batch 0", "lse in bfloat16", "lse times ln 2", "reads lse times ln 2",
    "dS in bfloat16", "dout of the query before", "first head of group", "dbias of the last", "halved", "log2 e in",
}  # fmt: skip


@cache
def right_answer(case: str):
    return answer_of_case(making(None), case)


def first_case(mistake) -> str:
    """Return the first case in which a mistake shows."""
    applies = (case for case in CASES if any(True for _ in mistake.predict(right_answer(case))))
    return next(case for case in applies if answer_of_case(making(mistake), case).wrong)


def _parametrized(mistake):
    """Tiles of other sizes repeat what those of 16 show, as columns do, and so on."""
    size = re.search(r"\d+", mistake.name)
    repeats = mistake.name in ALIKE or (
        size is not None and size[0] in ("8", "32", "64", "128") and not mistake.name.endswith("32 columns")
    )
    return pytest.param(mistake, marks=pytest.mark.thorough if repeats else (), id=mistake.name)


@pytest.mark.parametrize("mistake", [_parametrized(each) for each in TABLE])
def test_each_mistake_is_named_and_no_other(mistake):
    impl, case = making(mistake), first_case(mistake)
    (line,) = said_of(impl, case)
    # Tiles that end at the same key are named together.
    words = re.sub(r"(tile|multiple) of \d+", r"\1 of #", mistake.said(answer_of_case(impl, case)))
    said_words = re.sub(r"(tile|multiple) of \d+[\d, or]*(?<=\d)", r"\1 of #", line)
    outputs, _, rest = re.fullmatch(r"([a-z, ]+?) (is the one|are the ones) (.*)", said_words).groups()
    assert rest == ALSO.get(mistake.name, words)
    assert set(re.split(r", | and ", outputs)) <= {"out", "lse", "dq", "dk", "dv", "dbias", "dsink"}
    size = re.search(r"(?:tile|multiple) of (\d+)", mistake.said(answer_of_case(impl, case)))
    assert size is None or size[1] in re.findall(r"\d+", re.search(r"(?:tile|multiple) of ([\d, or]+)", line)[1])


@pytest.mark.parametrize("scale", [0.0, -0.25])
def test_a_head_without_a_sink_has_none_at_any_scale(scale):
    (ignored,) = [mistake for mistake in TABLE if mistake.name == "sinks ignored"]
    case = f"seqlen_q=35 seqlen_k=35 headdim=7 nheads=2 sinks=some_off softmax_scale={scale}"
    (line,) = said_of(making(ignored), case)
    assert "of sinks=None: the sinks are ignored" in line


def test_names_are_unique():
    assert [name for name, n in Counter(mistake.name for mistake in TABLE).items() if n > 1] == []


@pytest.mark.parametrize("case", CASES)
def test_a_right_kernel_makes_no_mistake(case):
    assert right_answer(case).wrong == {}


# --- edits of a tiled kernel: the larger cases tell what the smallest cannot ----------------------

FORWARD_SCALE = ("k.shape[1]\n    scale = headdim**-0.5 if softmax_scale is None else softmax_scale",
                 "k.shape[1]\n    scale = headdim**-0.5")  # fmt: skip
SCORES = "s = scale * (qi @ kj.mT)"
EXP = "p = torch.exp(s - m_safe)"
DS = "ds = p * (dp - delta_i)"
NAMED = {
    "dq and dk are the ones without delta: dS = P dP in place of P (dP - delta)": (
        "seqlen_q=1 seqlen_k=1 headdim=1",
        ((DS, "ds = p * dp"),),
    ),
    "dq is the one with the factor softmax_scale once too often": (
        "seqlen_q=1 seqlen_k=2 headdim=1 softmax_scale=0.5",
        (("dq = (dq * scale).to(q.dtype)", "dq = (dq * scale * scale).to(q.dtype)"),),
    ),
    "out, lse, dq, dk and dv are the ones of softmax_scale = 1: the scale is left out": (
        "seqlen_q=1 seqlen_k=2 headdim=4",
        tuple((f"k.shape[1{end}]\n    scale = headdim**-0.5 if softmax_scale is None else softmax_scale",
               f"k.shape[1{end}]\n    scale = 1.0") for end in ("", ":3")),
    ),
    # The backward is right: its gradients follow from out and lse.
    "out and lse are the ones of the default softmax_scale: -0.25, as given, is ignored": (
        "seqlen_q=1 seqlen_k=1 headdim=1 softmax_scale=-0.25",
        (FORWARD_SCALE,),
    ),
    "out, lse, dq, dk and dv are the ones with one key fewer in each row: the causal mask ends one key too early": (
        "seqlen_q=1 seqlen_k=2 headdim=1 causal=True",
        ((CAUSAL, CAUSAL.replace(">", ">=")),),
    ),
    "out is the one before it is divided by the row sum l": (
        "seqlen_q=1 seqlen_k=2 headdim=1",
        (("oi = torch.where(l == 0, 0.0, acc / l)", "oi = acc"),),
    ),
    "dv is the one with the opposite sign": (
        "seqlen_q=1 seqlen_k=1 headdim=1",
        (("dvj += as_operand(p, q).mT @ doi", "dvj -= as_operand(p, q).mT @ doi"),),
    ),
    "dq is the one with dS, or P for dv, rounded to float16: keep it in float32": (
        "seqlen_q=2 seqlen_k=2 headdim=1",
        (("as_operand(dr, q) @ kj)", "dr.half().float() @ kj)"),),
    ),
    "out, lse, dq, dk, dv and dbias are the ones with the bias subtracted": (
        "seqlen_q=1 seqlen_k=1 headdim=1 bias=vector",
        (("else s + bias", "else s - bias"),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", NAMED)
def test_an_edit_is_named_by_its_smallest_case(words):
    case, edits = NAMED[words]
    assert said(edited(*edits), case) == [words]


# --- planted bugs: most are none of the table's mistakes ------------------------------------------

BUGS = {mutant.name: mutant for mutant in ALL}
STATED = {
    "causal_aligns_top_left": ("seqlen_q=1 seqlen_k=2 headdim=1 causal=True",
                                     "out, lse, dq, dk and dv are the ones of causal_alignment='top_left'"),
    "gqa_sums_the_wrong_heads": ("seqlen_q=1 seqlen_k=1 headdim=1 nheads=6 nheads_k=3",
                                       "dk and dv are the ones summed over the heads h % nheads_k in place of h // group"),
    "lse_is_that_of_batch_0": ("batch=2 headdim=1", "dq, dk and dv are the ones with lse of batch 0 in every batch"),
    "padding_keys_count_as_score_zero": (
        "headdim=1",
        "out and lse are the ones with padding keys counted, as keys of score 0 up to the next multiple of 16"),
    "bias_is_rounded_to_bfloat16": (
        "headdim=1 bias=vector", "out, lse, dq, dk, dv and dbias are the ones with the bias rounded to bfloat16"),
    "window_sees_one_key_too_many_on_the_left": (
        "seqlen_q=2 seqlen_k=2 headdim=1 window=0:",
        "out, lse, dq, dk and dv are the ones of window=1:, so the left bound is one key too far"),
    "backward_ignores_the_window": (
        "seqlen_q=2 seqlen_k=2 headdim=1 window=0:",
        "dq, dk and dv are the ones of window=None, so the window is ignored, in the backward alone"),
    "derivative_of_the_cap_is_left_out": (
        "seqlen_q=2 seqlen_k=2 headdim=1 softcap=5.0",
        "dq and dk are the ones without the slope of the softcap, 1 - tanh(score / softcap)^2"),
    "sink_joins_without_exp": (
        "headdim=1 sinks=count",
        "out and lse are the ones with the sink itself added to the row sum: exp(sink - m) is what counts"),
    "dsink_is_the_weight_of_the_sink": (
        "headdim=1 sinks=count", "dsink is the one without delta: -P_sink in place of -P_sink delta"),
    "gradient_of_lse_has_the_wrong_sign": (
        "headdim=1 dlse=True", "dq and dk are the ones with the sign of dlse wrong: delta is sum dout out - dlse"),
}  # fmt: skip
THOROUGH = {
    "right_side_of_the_window_is_ignored": (
        "seqlen_q=2 seqlen_k=2 headdim=1 window=1:0",
        "out, lse, dq, dk and dv are the ones of window=1:, so the right side is ignored"),
    "window_is_ignored_with_a_causal_mask": (
        "seqlen_q=2 seqlen_k=2 headdim=1 causal=True window=0:",
        "out, lse, dq, dk and dv are the ones of window=None, so the window is ignored"),
    "scores_are_multiplied_by_their_tanh": (
        "headdim=1 softcap=5.0",
        "out, lse, dq, dk and dv are the ones with score * tanh(score) in place of softcap * tanh(score / softcap)"),
    "cap_is_applied_before_the_scale": (
        "headdim=2 softcap=5.0", "out, lse, dq, dk and dv are the ones with the softcap applied before softmax_scale"),
    "bias_is_capped_too": (
        "headdim=1 softcap=5.0 bias=vector",
        "out, lse, dq, dk and dv are the ones with the softcap applied to score + bias, not to the score alone"),
    "tanh_is_approximate_and_not_declared": (
        "headdim=1 softcap=2.0",
        "out, lse, dq, dk and dv are as exact as with a relative error of tanh of about 2^-11: declare its largest one, "
        "Precision(tanh=...), or use a more exact tanh"),
    "backward_ignores_the_cap": (
        "seqlen_q=2 seqlen_k=2 headdim=1 softcap=5.0",
        "dq, dk and dv are the ones of softcap=None: the softcap is ignored, in the backward alone"),
    "sink_is_dropped": ("headdim=1 sinks=count", "out and lse are the ones of sinks=None: the sinks are ignored"),
    "sink_is_that_of_the_key_head": (
        "headdim=1 nheads=2 nheads_k=1 sinks=count",
        "out and lse are the ones with the sink of the key head, h // group, in place of the query head"),
}  # fmt: skip
NOT_STATED = {
    "scores_are_cut_at_the_cap": "seqlen_k=2 headdim=1 softcap=2.0",
    "derivative_of_the_cap_is_not_squared": "seqlen_q=2 seqlen_k=2 headdim=1 softcap=5.0",
    "cap_is_applied_after_the_mask": "seqlen_q=2 seqlen_k=2 headdim=1 softcap=5.0 causal=True",
    "first_tile_of_the_window_is_skipped_if_it_is_partial": "seqlen_q=2 seqlen_k=17 headdim=1 window=1:",
    "row_maximum_starts_at_zero": "headdim=1 regime=shifted_down",
    "maximum_is_not_subtracted": "headdim=1 regime=shifted_up",
    "exponential_has_a_short_constant": "seqlen_k=2 headdim=1",
    "probabilities_have_four_bits": "seqlen_q=2 seqlen_k=2 headdim=1",
    "causal_mask_value_is_finite": "seqlen_q=2 seqlen_k=1 headdim=1 causal=True",
    "dead_row_has_lse_zero": "headdim=1 bias=matrix bias_mask=dead_row",
    "log_n_scaling_is_left_on": "seqlen_q=65 headdim=1 causal=True",
    "last_tile_is_not_rescaled": "seqlen_q=1 seqlen_k=20 headdim=1 seed=121",
    "batches_from_the_fourth_on_read_its_keys": "seqlen_k=2 headdim=1 batch=5",
    "causal_skipped_in_second_query_tile": "seqlen_q=18 seqlen_k=1 headdim=1 causal=True",
}


# Mistakes that are made above, too, by the table.
MADE = ("backward_ignores_the_window", "derivative_of_the_cap_is_left_out", "dsink_is_the_weight_of_the_sink",
        "gradient_of_lse_has_the_wrong_sign", "lse_is_that_of_batch_0", "sink_joins_without_exp")  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.thorough if name in (*THOROUGH, *MADE) else ())
        for name in (*STATED, *THOROUGH)
    ],
)
def test_a_planted_bug_of_the_table_is_named(name):
    case, words = (STATED | THOROUGH)[name]
    assert said(build(BUGS[name]), case) == [words]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.thorough if n % 2 else ()) for n, name in enumerate(NOT_STATED)],
)
def test_a_planted_bug_that_is_none_of_these_is_not_named(name):
    assert said(build(BUGS[name]), NOT_STATED[name]) == []


def test_noise_is_not_named():
    """Random errors are larger than every declared rounding, and no definition has them."""
    right = making(None)

    def noisy(q, k, v, **keywords):
        out, lse = right.forward(q, k, v, **keywords)
        return out + 0.01 * torch.randn(out.shape, generator=torch.Generator().manual_seed(0)), lse

    impl = type(right)(**{**{f: getattr(right, f) for f in ("backward", "lse", "supports", "devices")},
                          "name": "noisy", "forward": noisy})  # fmt: skip
    assert said(impl, "seqlen_q=35 headdim=7") == []
