"""A bias, vector or matrix, broadcast over batch and heads: numbers, -inf, or a boolean mask."""

import torch

from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.bias_masks import HIDING, hidden_entries
from flash_attest.properties.cases.case import ADDED, BOOLEAN
from flash_attest.properties.cases.inputs import WINS
from flash_attest.properties.cases.limits import FAR
from flash_attest.properties.cases.random_tensors import RandomTensors
from flash_attest.properties.checks.comparisons import (
    check_agree,
    check_all_agree,
    check_budget,
    check_copied,
    check_same,
)
from flash_attest.properties.checks.counts import COUNTED, check_averages, check_counts, countable
from flash_attest.properties.checks.hidden import check_hidden
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial


@law(bias=True, needs=("bias",), two_tiles=True, bug="masks")
def test_biased_attention_matches_the_definition(trial):
    """S = softmax_scale q k^T + bias, and a bias of size 1 in a dimension is broadcast along it.

    The bias has the shape (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k). out, lse and every
    gradient are within the error budget, even with entries of -inf. Padding and windows hide whole
    tiles of keys, sometimes the first tile of a row.
    """
    check_budget(trial, trial.run(backward=trial.backward))


@law(bias=ADDED, needs=("bias", "added bias"), bias_mask=("none",), bug="masks")
def test_broadcast_bias_equals_its_copy(trial):
    """A bias of size 1 along batch, heads or queries gives the results of its expanded copy.

    They agree within the budget of both.
    """
    x, case = trial.x, trial.case
    rows = case.seqlen_q if "matrix" in trial.impl.supports.bias_kinds else x.bias.shape[2]
    written_out = x.bias.expand(case.batch, case.nheads, rows, case.seqlen_k).contiguous()
    kind = "matrix" if rows == case.seqlen_q else case.bias
    trial.needs_supported(case.but(bias=kind, bias_batch=case.batch, bias_nheads=case.nheads))
    got, copied = trial.run(x), trial.run(x.with_(bias=written_out))
    check_all_agree(trial, got, copied, trial.expected(), "with the bias written out it is")


@law(bias=ADDED, needs=("bias", "added bias", "lse"), bias_mask=("none", "right"), sinks=False, bug="softmax-and-lse")
def test_constant_in_bias_changes_only_lse(trial):
    """A constant c added to each row of the bias leaves out unchanged and adds c to lse.

    softmax(s + c) = softmax(s), and log sum exp(s + c) = c + log sum exp(s).
    """
    x = trial.x
    random = trial.random("constant")
    added = random.integers((*x.bias.shape[:3], 1), -8, 8)
    moved = x.with_(bias=(x.bias.float() + added).to(x.bias.dtype))
    # A half dtype often rounds the sum. The bias is 0 there.
    exact = (moved.bias.float() - added == x.bias.float()) | x.bias.isinf()
    x = x.with_(bias=torch.where(exact, x.bias, 0))
    moved = x.with_(bias=torch.where(exact, moved.bias, added.to(x.bias.dtype)))
    before, after = trial.run(x), trial.run(moved)
    right, sigma = trial.expected(moved)
    before_it = "without the constant in its bias it was"
    check_agree(trial, "out", after.out, before.out, sigma.out, before_it, right=right.out)
    want = before.lse.double() + added[..., 0].double()
    check_agree(trial, "lse", after.lse, want, sigma.lse, "with the constant added it should be", right=right.lse)


@law(bias=True, bias_mask=HIDING, needs=("bias", "lse"), two_tiles=True, sinks=COUNTED, bug="masks")
def test_infinite_bias_hides_exactly_its_keys(trial):
    """With q = 0 and a bias of 0 or -inf, exp(lse) is the number of keys that the query sees.

    A boolean mask hides a key where it is False. The count is an integer, so no tolerance is
    needed. A sink adds another integer. Right and left padding, a window and a dead row hide whole
    tiles at the start, at the end, or everywhere.
    """
    check_counts(trial, *_hidden_or_zero(trial))


@law(
    bias=True, bias_mask=HIDING, needs=("bias", "own v"), two_tiles=True, sinks=COUNTED, shared_kv=False,
    where=countable, share=0.5, bug="masks",
)  # fmt: skip
def test_out_averages_the_keys_that_a_bias_leaves(trial):
    """With q = 0 and a bias of 0 or -inf, out is the mean of v over the keys that the query sees.

    v_j is 1 in column j mod headdim_v and 0 elsewhere, so out counts the keys of each column, even
    if there is no lse. A sink of log n counts as n more keys with v = 0. A boolean mask hides a key
    where it is False.
    """
    check_averages(trial, *_hidden_or_zero(trial))


@law(
    bias=ADDED, bias_mask=HIDING, needs=("bias", "added bias", "own v"), two_tiles=True, sinks=False, shared_kv=False,
    where=countable, share=0.5, bug="masks",
)  # fmt: skip
def test_finite_masks_hide_as_infinity_does(trial):
    """With q = 0, a key masked by a large negative bias has weight 0 next to keys of bias 0.

    The weight is exactly 0. The bias of masked keys is the least number of its dtype, or -1e9
    (-2^15 in float16). A row is not empty if all of its keys have -1e9: their weights are equal,
    and out is their mean of v. The mean is checked for one row in four, and only in float32: one
    rounding of such a score may be 64, and exp(64) is too large for a half dtype. It is not checked
    if parts are merged by lse: next to -1e9, float32 has no digits left for the log of the number
    of keys. If no row is entirely masked, gradients must not be NaN.
    """
    x = trial.zeroed("q")
    # Put the large negative bias where the case has -inf, and everywhere in some rows.
    hidden, least = x.bias.isinf(), torch.finfo(x.bias.dtype).min
    mask = least if trial.case.seed % 2 else max(-1e9, least / 2)
    merges = trial.impl.precision.merge == "lse"
    has_mean = trial.case.dtype == torch.float32 and mask != least and not merges
    if has_mean:
        hidden = hidden | (trial.random("rows").integers((*x.bias.shape[:3], 1), 0, 3) == 0)
    x = x.with_(bias=torch.where(hidden, mask, 0.0).to(x.bias.dtype))
    # Only keys that are not masked count. In a row without any, the masked keys count.
    visible = trial.seen()
    unmasked = visible & ~hidden
    masked = visible & ~unmasked.any(dim=-1, keepdim=True)  # the keys of rows in which all keys are masked
    check_averages(trial, x, unmasked | masked if has_mean else unmasked)
    if trial.impl.lse is not None:
        check_counts(trial, x, unmasked)
    if trial.backward and not bool(masked.any()):
        for name, tensor in trial.run(x, backward=True).items():
            if name != "lse":
                numbers = torch.where(tensor.isfinite(), tensor, 0.0)
                check_same(trial, name, tensor, numbers, "it should be a number, such as")


@law(bias=True, bias_mask=("right", "left"), needs=("bias",), bug="masks")
def test_keys_hidden_by_bias_change_no_bit(trial):
    """Keys that a bias hides from every query and head have no influence on any output.

    If their k and v change, outputs keep their bits, or stay within the budget if they are not
    declared repeatable. dk and dv of these keys are 0. A kernel may order keys by their values, and
    so add up the others in another order. So where bits change, k and v of the hidden keys are made
    larger, v by 2^40 (float16: 2^10), and outputs stay within the budget.
    """
    x, case = trial.x, trial.case
    hidden = (
        hidden_entries(x.bias).all(dim=2).all(dim=1).expand(case.batch, case.seqlen_k)[:, :, None, None]
    )  # (b, sk, 1, 1)
    random = trial.random("other keys")
    other = {name: random.uniform(getattr(x, name).shape, -10, 10).to(case.dtype) for name in ("k", "v")}
    changed = trial.tied(x.with_(**{name: torch.where(hidden, other[name], getattr(x, name)) for name in other}))
    check_hidden(trial, changed, hidden, "as only hidden keys changed it should still be")


@law(
    bias=ADDED,
    needs=("bias", "added bias"),
    bias_mask=("alibi",),
    regime=("spread", "mean"),
    softmax_scale=False,
    bug="masks",
)
def test_alibi_matches_the_definition(trial):
    """ALiBi, bias_ij = -slope_h |i + seqlen_k - seqlen_q - j|, gives the defined results.

    Each head and each diagonal has its own value. All results are within the error budget.
    """
    check_budget(trial, trial.run(backward=trial.backward))


@law(
    bias=True, bias_mask=("none",), causal=False, window=False, hidden=False, sinks=False, needs=("bias",),
    bug="boundaries", reach=FAR,
)  # fmt: skip
def test_bias_picks_its_key(trial):
    """With q = 0 and a bias of 128 at one key of each row, out is the v of that key, bit for bit.

    The bias is 0 elsewhere; a boolean mask is False elsewhere. Each row of the bias picks its own
    key, in every batch and head. A wrong stride or broadcast picks a wrong row of v.
    """
    x, case = trial.zeroed("q"), trial.case
    picked = _one_key_each(trial.random("picked"), x.bias.shape)
    bias = torch.zeros_like(x.bias).scatter(3, picked, True if case.bias in BOOLEAN else WINS)
    key = picked[..., 0].expand(case.batch, case.nheads, case.seqlen_q).transpose(1, 2)  # (b, sq, h)
    v = x.v.repeat_interleave(case.nheads // case.nheads_k, dim=2)
    want = v.gather(1, key[..., None].expand(-1, -1, -1, case.headdim_v))
    got = trial.run(x.with_(bias=bias)).out
    check_copied(trial, got, want, "should be v of the key that its bias selects:")


def _hidden_or_zero(trial: Trial) -> tuple[Inputs, torch.Tensor]:
    """Return inputs with scores of 0 or -inf, and which keys each query sees (b, h, sq, sk)."""
    x = trial.zeroed("q")
    hidden = hidden_entries(x.bias)
    if trial.case.bias in ADDED:
        x = x.with_(bias=torch.where(hidden, x.bias, 0))
    return x, trial.seen() & ~hidden


def _one_key_each(random: RandomTensors, shape: tuple[int, ...]) -> torch.Tensor:
    """Return indices of keys (b | 1, h | 1, 1 | sq, 1) for a bias (b | 1, h | 1, 1 | sq, sk)."""
    return random.integers((*shape[:3], 1), 0, shape[3] - 1).long()
