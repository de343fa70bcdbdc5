"""out and lse match the definition as closely as rounding allows, and exactly if one key wins."""

import torch

from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import check_budget, check_copied
from flash_attest.properties.law import law


@law(bug="tolerances")
def test_out_matches_the_definition(trial):
    """out = softmax(softmax_scale q k^T + bias) v, row by row over the visible keys.

    With a softcap c, scores are c tanh(softmax_scale q k^T / c) + bias. A sink is one more score of
    each row, which has no v.
    z is the error of an element in units of the error that rounding explains there. The unit is
    derived from the float64 oracle's intermediate values and the declared precision:
    docs/why/conventions.md#error-budget.
    """
    check_budget(trial, trial.run(), None, "out")


@law(needs=("lse",), bug="softmax-and-lse")
def test_lse_matches_the_definition(trial):
    """lse_i = log sum_j exp(softmax_scale <q_i, k_j> + bias_ij) over the visible keys.

    log is the natural logarithm, and lse has dtype float32. With a softcap c, scores are
    c tanh(softmax_scale <q_i, k_j> / c) + bias_ij. A sink adds exp(sink_h) to the sum of each row.
    """
    check_budget(trial, trial.run(), None, "lse")


@law(regime=("selecting",), softmax_scale=False, bias_mask=("none",), softcap=False, sinks=False, hidden=False,
     bug="boundaries")  # fmt: skip
def test_winning_key_is_copied(trial):
    """If one score leads all others by 64, out is the v of that key, bit for bit.

    P is 1 for this key and 0 for all others. The oracle gives the index of the winning key if v_j =
    j. Rows in which several keys share the weight are left out. In half dtypes, rows are also left
    out if their scores are so large (above 2048 in float16) that one float32 rounding changes P
    after its cast.
    """
    x, case = trial.x, trial.case
    j = torch.arange(case.seqlen_k, device=trial.device, dtype=torch.float64)
    winner = trial.want(x.with_(v=j[None, :, None, None].expand_as(x.v))).out[..., 0].round().long()  # (b, i, h)
    v = x.v.repeat_interleave(case.nheads // case.nheads_k, dim=2)
    want = v.gather(1, winner[..., None].expand(-1, -1, -1, case.headdim_v)) if case.seqlen_k else trial.x.dout
    decided = (trial.want().out == want.double()).all(dim=-1, keepdim=True)  # (b, i, h, 1)
    decided &= bits.copied_whatever_rounds(trial, trial.want().lse)  # lse is the score of the winning key
    trial.needs(bool(decided.any()) or not decided.numel())
    got = trial.run().out
    check_copied(trial, torch.where(decided, got, want), want, "should be copied from v:")
