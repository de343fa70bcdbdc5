"""A query sees exactly the keys that block_mask or kv_indices show it."""

from flash_attest.properties.checks.counts import COUNTED, check_seen
from flash_attest.properties.checks.hidden import check_unseen
from flash_attest.properties.law import law


@law(hidden=True, bias=False, sinks=COUNTED, needs=("hidden",), two_tiles=True, bug="masks")
def test_query_sees_exactly_the_keys_that_are_shown(trial):
    """Query i sees key j iff block_mask is True at their blocks, or kv_indices lists j for i.

    Both hold beside causal and a window. An index of -1 is padding. With q = 0, exp(lse_i) is the
    number of visible keys, an integer, and out_i is the mean of their v. v_j is 1 in column j mod
    headdim_v and 0 elsewhere, so out counts them, column by column.
    """
    check_seen(trial, by_both=True)


@law(hidden=True, needs=("hidden",), two_tiles=True, bug="masks")
def test_keys_that_are_not_shown_change_no_bit(trial):
    """Keys that block_mask or kv_indices hide from a query have no influence on its results.

    All k and v that none of up to four neighbouring queries sees are replaced, in each batch and
    key head. For queries that see none of the replaced keys, out, lse and dq keep their bits, or
    stay within the budget if they are not declared repeatable. Where bits change, the replaced k
    and v are made larger, as in hidden_keys_change_no_bit.
    """
    random, case = trial.random("rows"), trial.case
    first = random.number(0, case.seqlen_q - 1)
    seen = trial.seen()[:, :, first : first + random.number(1, 4)].any(dim=2)  # (b, h, sk)
    replaced = ~seen.unflatten(1, (case.nheads_k, -1)).any(dim=2)
    check_unseen(trial, replaced, "as only keys that are hidden from this query changed it should still be")
