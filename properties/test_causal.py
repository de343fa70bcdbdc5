"""Query i sees exactly the keys of its prefix, aligned as declared."""

import torch

from flash_attest.oracle import ALIGNMENTS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.cases.lengths import APART
from flash_attest.properties.cases.limits import FAR
from flash_attest.properties.checks.comparisons import check_agree, check_copied
from flash_attest.properties.checks.counts import COUNTED, check_averages, check_counts, countable
from flash_attest.properties.checks.hidden import check_unseen
from flash_attest.properties.law import law

HALVES = (8, 16, 32, 64, 128)  # half a tile of 16 to 256 keys


def toward_tiles(case: Case) -> Case:
    """Return the case with a tile or half a tile more keys than queries, if their difference is
    even.

    With half a tile, the first query sees half of a tile, and the last query of its tile sees keys
    of the next one. A kernel that skips tiles by the first query is right if the difference is
    whole tiles, and one that rounds the number of tiles by hand may be wrong only then.
    """
    more = case.seqlen_k - case.seqlen_q
    apart = [n for n in APART if n < case.seqlen_k] if more % 4 else [n for n in HALVES if 2 * n < case.seqlen_k]
    if more <= 0 or more % 2 or more in APART or not apart:
        return case
    return case.but(seqlen_q=case.seqlen_k - apart[case.seqlen_q % len(apart)])


@law(causal=True, window=False, bias=False, sinks=COUNTED, needs=("causal", "lse"), bug="masks",
     toward=toward_tiles)  # fmt: skip
def test_query_sees_exactly_its_prefix(trial):
    """query i sees key j  iff  j <= i + seqlen_k - seqlen_q      (bottom_right; top_left: j <= i)

    With q = 0 every score is 0, so all visible keys have the same weight and exp(lse_i) is the
    number of visible keys. That is an integer, so no tolerance is needed. A sink adds another
    integer. With random q, most draws would not show an error of one key.
    """
    check_counts(trial, trial.zeroed("q"), trial.seen())


@law(causal=True, window=False, bias=False, sinks=COUNTED, needs=("causal", "own v"), bug="masks", where=countable, reach=FAR,
     shared_kv=False, toward=toward_tiles)  # fmt: skip
def test_out_averages_exactly_its_prefix(trial):
    """With q = 0, out_i is the mean of v over exactly the keys that query i sees.

    v_j is 1 in column j mod headdim_v and 0 elsewhere, so out_i times the number of visible keys
    counts them, column by column. A sink of log n counts as n more keys with v = 0.
    """
    check_averages(trial, trial.zeroed("q"), trial.seen())


@law(causal=True, needs=("causal",), bug="masks")
def test_hidden_keys_change_no_bit(trial):
    """Keys that a query does not see have no influence on its results.

    All k and v from some key on are replaced. For queries that see none of these keys, out, lse and
    dq keep their bits, or stay within the budget if they are not declared repeatable. A kernel may
    order keys by their values, and so add up the others in another order. So where bits change, the
    replaced k and v are made larger, v by 2^40 (float16: 2^10), and results stay within the budget.
    """
    first = trial.random("hidden").number(0, trial.case.seqlen_k - 1)
    replaced = torch.arange(trial.case.seqlen_k, device=trial.device) >= first
    check_unseen(trial, replaced, f"as keys {first}.. are hidden from this query it should still be")


@law(causal=True, cross=False, hidden=False, needs=("causal",), seqlen_q=(2, None), seqlen_k=(2, None), bug="masks")
def test_prefix_alone_equals_prefix_of_the_whole(trial):
    """The first n rows, computed alone, give the same results as in the whole sequence.

    The first n queries see only the first n keys. Results agree within the budget of both, as
    another length may change the order of summation.
    """
    x, case = trial.x, trial.case
    n = trial.cut("prefix", case.seqlen_q, lambda n: [case.but(seqlen_q=n, seqlen_k=n)])
    bias = None if x.bias is None else x.bias[:, :, : n if case.bias_has_rows else 1, :n].contiguous()
    dlse = None if x.dlse is None else x.dlse[..., :n].contiguous()
    first_rows = {name: getattr(x, name)[:, :n].contiguous() for name in ("q", "k", "v", "dout")}
    x_short = x.with_(bias=bias, dlse=dlse, **first_rows)
    backward = trial.backward
    got, whole = trial.run(x_short, backward=backward), trial.run(backward=backward)
    expected = trial.expected(backward=backward)
    for name in ("out", "lse", "dq"):
        if getattr(got, name) is not None:
            first = (slice(None), slice(None), slice(n)) if name == "lse" else (slice(None), slice(n))
            of_whole, right, sigma = (getattr(each, name)[first] for each in (whole, *expected))
            should = f"computed from the first {n} rows alone; in the whole it is"
            check_agree(trial, name, getattr(got, name), of_whole, sigma, should, right=right)


def alignments_differ(case: Case) -> bool:
    """Return whether some query sees another number of keys under the other alignment."""
    counts = [mask_of(case, each).visible(case.seqlen_q, case.seqlen_k).sum(dim=1) for each in ALIGNMENTS]
    return not torch.equal(*counts)


@law(causal=True, cross=True, bias=False, sinks=COUNTED, needs=("causal", "lse", "cross"), bug="masks",
     where=alignments_differ)  # fmt: skip
def test_alignment_is_as_declared(trial):
    """bottom_right: query i sees key j iff j <= i + seqlen_k - seqlen_q; top_left: iff j <= i.

    The two differ if seqlen_q != seqlen_k. With q = 0, exp(lse) counts the visible keys of each
    query, and the counts tell the two alignments apart. A window moves along with the diagonal.
    """
    check_counts(trial, trial.zeroed("q"), trial.seen())


@law(causal=True, bias=False, sinks=False, hidden=False, needs=("causal",), bug="masks")
def test_row_that_sees_one_key_copies_it(trial):
    """A query that sees one key gives it all the weight: out is the v of that key, bit for bit.

    In half dtypes, rows are left out if their scores are so large that one float32 rounding changes
    P after its cast.
    """
    seen = trial.visible()
    alone = (seen.sum(dim=1) == 1)[None, :, None, None]  # (1, sq, 1, 1)
    trial.needs(bool(alone.any()))
    key = seen.int().argmax(dim=1)
    want = trial.x.v.repeat_interleave(trial.case.nheads // trial.case.nheads_k, dim=2)[:, key]
    got = trial.run().out
    should = "should be v of the only key that its query sees:"
    check_copied(trial, torch.where(alone, got, want), want, should, trial.want().lse)
