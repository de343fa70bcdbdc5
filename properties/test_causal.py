"""Query i sees exactly the keys of its prefix, aligned as declared."""

import torch

from flash_attest.impls.contract.call import Outputs
from flash_attest.properties.cases.strategies import FAR
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import check_agree, check_copied, check_unchanged
from flash_attest.properties.checks.counts import check_averages, check_counts, countable, counts_of_other_alignment
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial


@law(causal=True, bias=False, needs=("causal", "lse"), bug="masks")
def test_query_sees_exactly_its_prefix(trial):
    """query i sees key j  iff  j <= i + seqlen_k - seqlen_q      (bottom_right; top_left: j <= i)

    With q = 0 every score is 0, so all visible keys have the same weight and exp(lse_i) is the
    number of visible keys. That is an integer, so no tolerance is needed. With random q, most draws
    would not show an error of one key.
    """
    check_counts(trial, trial.zeroed("q"), trial.visible())


@law(causal=True, bias=False, needs=("causal",), bug="masks", where=countable, reach=FAR)
def test_out_averages_exactly_its_prefix(trial):
    """With q = 0, out_i is the mean of v over exactly the keys that query i sees.

    v_j is 1 in column j mod headdim and 0 elsewhere, so out_i times the number of visible keys
    counts them, column by column.
    """
    check_averages(trial, trial.zeroed("q"), trial.visible())


@law(causal=True, needs=("causal",), bug="masks")
def test_hidden_keys_change_no_bit(trial):
    """Keys that a query does not see have no influence on its results.

    All k and v from some key on are replaced. For queries that see none of these keys, out, lse and
    dq keep their bits, or stay within the budget if they are not declared repeatable.
    """
    first = trial.random("hidden").number(0, trial.case.seqlen_k - 1)
    blind = ~trial.visible()[:, first:].any(dim=1)  # (sq,) queries that see none of the changed keys
    trial.needs(bool(blind.any()))
    x, random = trial.x, trial.random("other keys")
    changed = {name: getattr(x, name).clone() for name in ("k", "v")}
    for tensor in changed.values():
        tensor[:, first:] = random.uniform(tensor[:, first:].shape, -10, 10).to(tensor.dtype)
    # With int8 or fp8, changed rows share a quantization step with these: the budget is allowed
    # then.
    _same_rows(trial, x, x.with_(**changed), blind, f"as keys {first}.. are hidden from this query it should still be")


@law(causal=True, cross=False, needs=("causal",), seqlen_q=(2, None), seqlen_k=(2, None), bug="masks")
def test_prefix_alone_equals_prefix_of_the_whole(trial):
    """The first n rows, computed alone, give the same results as in the whole sequence.

    The first n queries see only the first n keys. Results agree within the budget of both, as
    another length may change the order of summation.
    """
    x, case = trial.x, trial.case
    n = trial.cut("prefix", case.seqlen_q, lambda n: [case.but(seqlen_q=n, seqlen_k=n)])
    matrix = case.bias == "matrix"
    bias = None if x.bias is None else x.bias[:, :, : n if matrix else 1, :n].contiguous()
    x_short = x.with_(bias=bias, **{name: getattr(x, name)[:, :n].contiguous() for name in ("q", "k", "v", "dout")})
    backward = trial.backward
    got, whole = trial.run(x_short, backward=backward), trial.run(backward=backward)
    budget = trial.budget(trial.want(backward=backward), backward=backward)
    for name in ("out", "lse", "dq"):
        if getattr(got, name) is not None:
            first = (slice(None), slice(None), slice(n)) if name == "lse" else (slice(None), slice(n))
            check_agree(trial, name, getattr(got, name), getattr(whole, name)[first], getattr(budget, name)[first],
                        f"computed from the first {n} rows alone; in the whole it is")  # fmt: skip


@law(causal=True, cross=True, bias=False, needs=("causal", "lse", "cross"), bug="masks",
     where=lambda case: case.seqlen_q != case.seqlen_k)  # fmt: skip
def test_alignment_is_as_declared(trial):
    """bottom_right: query i sees key j iff j <= i + seqlen_k - seqlen_q; top_left: iff j <= i.

    The two differ if seqlen_q != seqlen_k. With q = 0, exp(lse) counts the visible keys of each
    query, and the counts tell the two alignments apart.
    """
    got = trial.run(trial.zeroed("q")).lse.double().exp().round()
    other, counts = counts_of_other_alignment(trial)
    if bool((got == counts).all()):
        raise LawBroken(
            f"causal mask is aligned {other}, but {trial.impl.causal_alignment} is declared",
            f'every query sees as many keys as {other} gives it: declare causal_alignment="{other}", or shift the mask',
        )
    check_counts(trial, trial.zeroed("q"), trial.visible())


@law(causal=True, bias=False, needs=("causal",), bug="masks")
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


def _same_rows(trial: Trial, x, x_changed, rows: torch.Tensor, should: str) -> None:
    backward = trial.backward
    before, after = trial.run(x, backward=backward), trial.run(x_changed, backward=backward)
    masks = {"out": rows[None, :, None, None], "dq": rows[None, :, None, None], "lse": rows[None, None, :]}
    compared = {
        name: torch.where(masks[name], tensor, getattr(before, name)) for name, tensor in after.items() if name in masks
    }
    keeps_bits = bits.keeps_when_others_change(trial)
    check_unchanged(trial, before, Outputs(**compared), should, x, keeps_bits=keeps_bits, other=x_changed)
