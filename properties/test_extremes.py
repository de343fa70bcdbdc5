"""The ends of every range: huge and tiny scores, rows without a key, one key, no key, scale 0."""

import torch

from flash_attest.properties.cases.bias_masks import rows_without_keys
from flash_attest.properties.cases.case import BIASES, BOOLEAN, Case
from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.cases.limits import FAR, short
from flash_attest.properties.cases.sizes import edges
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import (
    check_all_agree,
    check_budget,
    check_copied,
    check_near,
    check_same,
    check_unchanged,
)
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial

MAY_BE_EMPTY = ("dead_row", "left", "none")
SPLITS = (*edges(FAR, 255), FAR - 10)  # keys from which kernels split them, and keys that do not divide evenly


def may_be_empty(case: Case) -> bool:
    """Return whether a query may see no key, because of its bias or its position."""
    by_position = mask_of(case, "bottom_right").has_empty_rows(case.seqlen_q, case.seqlen_k)
    return case.bias_mask in ("dead_row", "left") or case.hidden == "dead_rows" or by_position


def toward_empty(case: Case) -> Case:
    """Return the case with more queries than keys, with causal left padding, or with a dead row.

    Hidden keys may leave rows without a key already.
    """
    if case.hidden == "dead_rows":
        return case
    if case.causal and case.bias is None:
        return case.but(seqlen_q=max(case.seqlen_q, case.seqlen_k) + 1, seqlen_k=min(case.seqlen_q, case.seqlen_k))
    if case.causal:
        return case.but(bias_mask="left")
    return case.but(bias="boolean_matrix" if case.bias in BOOLEAN else "matrix", bias_mask="dead_row")


@law(
    regime=("shifted_up", "shifted_down", "large", "peaked", "uneven"),
    softmax_scale=(None, 1.0, -1.0, 2.0),
    bug="softmax-and-lse",
)
def test_huge_scores_match_the_definition(trial):
    """With huge scores, out, lse and all gradients are finite and within the error budget.

    Scores are +-160, or up to thousands. Softmax depends only on their differences. exp overflows
    if the row maximum is not subtracted, and underflows if a wrong one is, such as the maximum of
    another row.
    """
    check_budget(trial, trial.run(backward=trial.backward))


@law(regime=("flat", "exact"), softmax_scale=(None, 2.0**-10, -(2.0**-10)), bug="softmax-and-lse")
def test_tiny_scores_match_the_definition(trial):
    """Scores within 0.01 of each other, or scaled to almost 0, give the defined results.

    out is then close to the mean of v, and must have the small difference right. All results are
    within the error budget.
    """
    check_budget(trial, trial.run(backward=trial.backward))


@law(needs=("empty rows",), bug="masks", bias=BIASES, bias_mask=MAY_BE_EMPTY, where=may_be_empty, toward=toward_empty)
def test_rows_without_keys_give_zero(trial):
    """A row that sees no key has out = 0, lse = -inf (with a sink, lse = sink) and dq = 0, exactly.

    Its sum over keys is empty, so out is neither NaN nor the mean of v. Such a row has only masked
    keys, or only keys that come after it under bottom-right alignment, or outside of its window.
    """
    empty = _empty_rows(trial)  # (b, h, sq)
    trial.needs(bool(empty.any()))
    got = trial.run(backward=trial.backward)
    for name in ("out", "dq"):
        if (tensor := getattr(got, name)) is not None:
            rows = empty.transpose(1, 2)[..., None]
            zero = torch.zeros_like(tensor)
            check_same(trial, name, torch.where(rows, tensor, zero), zero, "its query sees no key, so it should be")
    _check_lse_of_empty(trial, got.lse, empty, "its query sees no key, so it should be")


@law(needs=("empty rows",), bug="masks", bias=BIASES, bias_mask=MAY_BE_EMPTY, where=may_be_empty, toward=toward_empty)
def test_rows_without_keys_leave_the_others_alone(trial):
    """A row that sees no key does not turn dk, dv or other rows into NaN (0 * inf, inf - inf).

    All results are within the error budget.
    """
    trial.needs(bool(_empty_rows(trial).any()))
    check_budget(trial, trial.run(backward=trial.backward))


@law(seqlen_k=(1, 1), cross=True, sinks=False, needs=("cross",), bug="boundaries")
def test_single_key_is_copied(trial):
    """With one key, out is its v, bit for bit, for every query that sees it and any score.

    The key has all the weight. In half dtypes, rows are left out if their scores are so large that
    one float32 rounding changes P after its cast.
    """
    got = trial.run().out
    sees = ~_empty_rows(trial).transpose(1, 2)[..., None]
    want = trial.x.v.repeat_interleave(trial.case.nheads // trial.case.nheads_k, dim=2).expand_as(got)
    check_copied(trial, torch.where(sees, got, want), want, "should be v of the only key:", trial.want().lse)


def toward_many_keys(case: Case) -> Case:
    """Return the case with hundreds of keys."""
    return case if case.seqlen_k in SPLITS else case.but(seqlen_k=SPLITS[case.seqlen_k % len(SPLITS)])


@law(seqlen_q=(1, 1), cross=True, needs=("cross",), bug="boundaries", reach=FAR, toward=toward_many_keys)
def test_single_query_matches_the_definition(trial):
    """One query over many keys (decoding) gives results within the error budget.

    Under bottom-right alignment it sees all keys, or those of its window. Decoding has its own
    kernels, which split the keys from some hundreds on, so cases have 255 to 1,030 keys, however
    short others are.
    """
    check_budget(trial, trial.run(backward=trial.backward))


@law(seqlen_k=(0, 0), cross=True, needs=("cross", "empty rows"), bug="boundaries", share=0.5, bias_mask=("none",))
def test_no_keys_give_zero(trial):
    """With seqlen_k = 0 every row is an empty sum: out = 0, lse = -inf and dq = 0.

    dk, dv and dbias have no elements. A sink has all the weight, so lse is the sink, and dsink is
    the sum of dlse.
    """
    got = trial.run(backward=trial.backward)
    for name, tensor in got.items():
        if name not in ("lse", "dsink"):
            check_same(trial, name, tensor, torch.zeros_like(tensor), "there is no key, so it should be")
    if got.lse is not None:
        empty = torch.ones_like(got.lse, dtype=torch.bool)
        _check_lse_of_empty(trial, got.lse, empty, "there is no key, so it should be")
    if got.dsink is not None:
        check_budget(trial, got, None, "dsink")


@law(seqlen_q=(0, 0), cross=True, needs=("cross",), bug="boundaries", share=0.5, bias_mask=("none",))
def test_no_queries_give_no_gradient(trial):
    """With seqlen_q = 0 nothing reaches the keys: dk, dv, dbias and dsink are 0.

    out and dq have no elements.
    """
    got = trial.run(backward=trial.backward)
    for name, tensor in got.items():
        check_same(trial, name, tensor, torch.zeros_like(tensor), "there is no query, so it should be")


@law(softmax_scale=False, needs=("softmax_scale",), share=0.3, toward=short, bug="softmax-and-lse")
def test_default_scale_may_be_given(trial):
    """softmax_scale = 1 / sqrt(headdim), given by name, gives the results of the default.

    Results agree within the budget of both: the default may be computed in float32, which rounds it
    to another number.
    """
    trial.needs_supported(trial.case.but(softmax_scale=trial.case.scale))
    backward = trial.backward
    default, given = trial.run(backward=backward), trial.run(backward=backward, softmax_scale=trial.case.scale)
    what = f"with softmax_scale={trial.case.scale:.6g}, which is the default; without it is"
    check_all_agree(trial, given, default, trial.expected(backward=backward), what)


@law(softmax_scale=(0.0,), needs=("scales of 0 and less",), bug="softmax-and-lse")
def test_scale_zero_is_q_zero(trial):
    """softmax_scale = 0 gives the same bits as q = 0, as both make every score 0.

    So a scale of 0 must not be taken for the default scale.
    """
    scaled, zeroed = trial.run(), trial.run(trial.zeroed("q"))
    check_unchanged(trial, zeroed, scaled, "with q = 0 it is")
    for name, tensor in zeroed.items():  # a NaN in both would count as equal, and no other law has this scale
        numbers = tensor.masked_fill(tensor.isnan(), 0.0)
        check_same(trial, name, tensor, numbers, "every score is 0, so it should be a number, such as")


@law(softmax_scale=(0.5, 0.1, 1.0), needs=("scales of 0 and less",), bug="softmax-and-lse")
def test_negative_scale_is_negated_q(trial):
    """The scale -s with q gives the results of the scale s with -q, as s <-q, k> = -s <q, k>.

    With a negative scale, the maximum of the unscaled scores is the minimum of the scaled ones.
    Results agree within the budget of both, as a negative scale may take another code path, for
    example one that first multiplies q by the scale.
    """
    x, s = trial.x, trial.case.softmax_scale
    trial.needs_supported(trial.case.but(softmax_scale=-s))
    negated, scaled = trial.run(x.with_(q=-x.q), softmax_scale=s), trial.run(softmax_scale=-s)
    expected = trial.expected(softmax_scale=-s)
    check_all_agree(trial, scaled, negated, expected, f"with scale {s} and -q it is")


@law(softmax_scale=(0.5, 0.125, 1.0), regime=("spread", "exact", "mean"), needs=("softmax_scale",),
     bug="softmax-and-lse")  # fmt: skip
def test_powers_of_four_move_between_q_and_scale(trial):
    """A quarter of the scale with 4 q gives the same bits: (s / 4) <4 q, k> = s <q, k>, exactly.

    The root of 4 is a power of two, so this also holds if q and k are each multiplied by the root
    of the scale.
    """
    x, s = trial.x, trial.case.softmax_scale
    trial.needs_supported(trial.case.but(softmax_scale=s / 4))
    plain, moved = trial.run(), trial.run(x.with_(q=4 * x.q), softmax_scale=s / 4)
    check_unchanged(trial, plain, moved, f"with scale {s} and q itself it is", keeps_bits=bits.keeps_when_moved(trial))


def _check_lse_of_empty(trial: Trial, lse: torch.Tensor | None, empty: torch.Tensor, should: str) -> None:
    """Check that lse (b, h, sq) of empty rows is -inf, or the sink within the error budget."""
    if lse is None:
        return
    if trial.x.sinks is None:
        nothing = torch.full_like(lse, -torch.inf)
        check_same(trial, "lse", torch.where(empty, lse, nothing), nothing, should)
        return
    want, sigma = trial.expected()
    check_near(trial, "lse", torch.where(empty, lse, want.lse.to(lse.dtype)), want.lse, sigma.lse)


def _empty_rows(trial: Trial) -> torch.Tensor:
    """Return bool (b, h, sq): which queries see no key."""
    return rows_without_keys(trial.case, trial.impl.causal_alignment, trial.x)
