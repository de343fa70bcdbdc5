"""out and lse are what the definition says, as closely as rounding allows; where one key wins, bit for bit."""

import torch

from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import check_budget, check_copied
from flash_attest.properties.law import law


@law(bug="tolerances")
def test_out_matches_the_definition(trial):
    """out = softmax(softmax_scale q k^T + bias) v, row by row over the visible keys.

    The error of each element is measured in units of what rounding explains there (z), from the float64 oracle's own
    intermediates and the declared precision: docs/why/conventions.md#error-budget.
    """
    check_budget(trial, trial.run(), None, "out")


@law(needs=("lse",), bug="softmax-and-lse")
def test_lse_matches_the_definition(trial):
    """lse_i = log sum_j exp(softmax_scale <q_i, k_j> + bias_ij) over the visible keys, natural log, float32."""
    check_budget(trial, trial.run(), None, "lse")


@law(regime=("selecting",), softmax_scale=False, bias_mask=("none",), bug="boundaries")
def test_winning_key_is_copied(trial):
    """Where one score stands 64 above all others, P is 1 there and 0 elsewhere: out is that row of v, bit for bit.

    Which key wins is what the oracle gives for v_j = j. Rows where several share the weight are left out, and in half
    dtypes rows whose scores are so large (above 2048 in float16) that one float32 rounding of them changes what P is cast to.
    """
    x, case = trial.x, trial.case
    j = torch.arange(case.seqlen_k, device=trial.device, dtype=torch.float64)
    winner = trial.want(x.with_(v=j[None, :, None, None].expand(x.k.shape))).out[..., 0].round().long()  # (b, i, h)
    v = x.v.repeat_interleave(case.nheads // case.nheads_k, dim=2)
    want = v.gather(1, winner[..., None].expand(-1, -1, -1, case.headdim)) if case.seqlen_k else trial.x.q
    decided = (trial.want().out == want.double()).all(dim=-1, keepdim=True)  # (b, i, h, 1)
    decided &= bits.copied_whatever_rounds(trial, trial.want().lse)  # of the winner, as it takes all the weight
    trial.needs(bool(decided.any()) or not decided.numel())
    got = trial.run().out

    check_copied(trial, torch.where(decided, got, want), want, "should be copied from v:")
