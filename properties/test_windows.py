"""Query i sees exactly the keys of its window, on both sides, aligned as declared."""

import torch

from flash_attest.oracle import ALIGNMENTS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.checks.comparisons import check_unchanged
from flash_attest.properties.checks.counts import COUNTED, check_seen
from flash_attest.properties.checks.hidden import check_unseen
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial


def hides_a_key(case: Case) -> bool:
    """Return whether the window hides a key that is visible without it, under some alignment."""
    masks = [[mask_of(each, alignment).visible(case.seqlen_q, case.seqlen_k) for each in (case, case.but(window=None))]
             for alignment in ALIGNMENTS]  # fmt: skip
    return not all(torch.equal(*pair) for pair in masks)


def toward_hidden_keys(case: Case) -> Case:
    """Return the case; if its window hides nothing, mostly with a shorter one, and not causal.

    A causal mask hides all that the right side of a window hides.
    """
    if hides_a_key(case) or (case.seqlen_q + case.seqlen_k) % 4 == 0:
        return case
    window = tuple(n if n is None else n % max(1, case.seqlen_k) for n in case.window)
    return case.but(window=window, causal=case.causal and window[0] is not None)


HIDING = dict(window=True, needs=("window",), two_tiles=True, toward=toward_hidden_keys)


@law(bias=False, sinks=COUNTED, bug="masks", **HIDING)
def test_query_sees_exactly_its_window(trial):
    """With window=(left, right), query i sees key j  iff  i' - left <= j <= i' + right.

    i' = i + seqlen_k - seqlen_q for bottom_right, and i for top_left. Both ends are included, None
    leaves a side open, and with causal, j <= i' as well. With q = 0, exp(lse_i) is the number of
    visible keys, an integer, and out_i is the mean of their v. v_j is 1 in column j mod headdim_v
    and 0 elsewhere, so out counts them, column by column.
    """
    check_seen(trial, by_both=True)


@law(bug="masks", **HIDING)
def test_keys_beyond_the_window_change_no_bit(trial):
    """Keys outside of the windows of some queries have no influence on their results.

    All k and v that none of up to four neighbouring queries sees are replaced, before their windows
    and behind them. For queries that see none of the replaced keys, out, lse and dq keep their
    bits, or stay within the budget if they are not declared repeatable. Where bits change, the
    replaced k and v are made larger, as in hidden_keys_change_no_bit. With slack="unseen", keys
    before the window of every query may hold NaN.
    """
    if trial.impl.slack == "unseen":
        _check_unread(trial)
    random, seen = trial.random("rows"), trial.visible()
    first = random.number(0, trial.case.seqlen_q - 1)
    replaced = ~seen[first : first + random.number(1, 4)].any(dim=0)
    check_unseen(trial, replaced, "as only keys outside of this query's window changed it should still be")


def _check_unread(trial: Trial) -> None:
    """Check that NaN in the keys before the window of every query changes no result."""
    seen = trial.visible().any(dim=0)  # (sk,)
    before = (seen.cumsum(0) == 0) & seen.any()
    if bool(before.any()):
        x, unread = trial.x, before[None, :, None, None]
        freed = x.with_(**{name: getattr(x, name).masked_fill(unread, torch.nan) for name in ("k", "v")})
        plain, got = (trial.run(each, backward=trial.backward) for each in (x, trial.tied(freed)))
        check_unchanged(
            trial, plain, got, "as only keys before the window of every query became NaN it should still be"
        )
