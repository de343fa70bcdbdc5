"""Lengths and head dims that are not multiples of a tile, and sizes beyond 16 bits."""

import torch

from flash_attest.impls.contract.tensors import Outputs
from flash_attest.properties.cases.beyond_16_bits import (
    BEYOND,
    of_late_values,
    of_some_queries,
    of_two_keys,
    with_sizes,
)
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.draws import PLAIN
from flash_attest.properties.cases.inputs import WINS
from flash_attest.properties.cases.limits import LONG
from flash_attest.properties.cases.sizes import edges
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import check_agree, check_budget, check_copied, check_unchanged
from flash_attest.properties.checks.counts import COUNTED, check_seen
from flash_attest.properties.failures import Reason, Undecided
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial

EDGES = set(edges(2**14))
BEYOND_16_BITS = dict(
    once=True, share=0.05, limited=False, gqa=False, bias=False, softmax_scale=False, regime=("spread",), **PLAIN,
    bug="boundaries",
)  # fmt: skip


@law(causal=False, window=False, hidden=False, bias=False, sinks=COUNTED, needs=("not causal",), bug="boundaries")
def test_padding_keys_count_nothing(trial):
    """With q = 0, exp(lse) is seqlen_k in every row, as every key has the same weight.

    The last key may be anywhere in its tile. A padding key that counts with score 0 makes exp(lse)
    larger by one, and a missing tail makes it smaller. A sink adds another integer. Without lse,
    out counts the keys of each column: v_j is 1 in column j mod headdim_v and 0 elsewhere, so their
    number is out * seqlen_k.
    """
    check_seen(trial)


def near_an_edge(case: Case) -> bool:
    """Return whether a length lies next to a power of two."""
    return bool({case.seqlen_q, case.seqlen_k} & EDGES)


def toward_an_edge(case: Case) -> Case:
    """Return the case with seqlen_k moved to the nearest edge; an equal seqlen_q stays equal."""
    nearest = min(EDGES, key=lambda n: abs(n - case.seqlen_k))
    same = case.seqlen_q == case.seqlen_k
    return case if near_an_edge(case) else case.but(seqlen_k=nearest, seqlen_q=nearest if same else case.seqlen_q)


@law(regime=("shifted_down", "spread", "mean"), bug="boundaries", where=near_an_edge, toward=toward_an_edge)
def test_ragged_sizes_match_the_definition(trial):
    """With lengths next to a power of two and any head dim, results are within the error budget.

    This holds for out, lse and every gradient. Some cases have scores near -160. There a padding
    key of score 0 is the largest of its row, and its exp(0 - lse) overflows.
    """
    check_budget(trial, trial.run(backward=trial.backward))


@law(
    causal=False, window=False, hidden=False, bias=False, softmax_scale=False, softcap=False, sinks=False,
    shared_kv=False, needs=("not causal", "own v"), regime=("spread", "large"), stretch=LONG, bug="boundaries",
)  # fmt: skip
def test_every_column_of_headdim_matters(trial):
    """If each key is a unit vector of its own column, a query along key j gets v_j, bit for bit.

    The query is 128/scale times the unit vector, so the score of its key is 128 and every other
    score is 0. A kernel that reads or writes only some columns (the first 64, or those before a
    multiple of 32) selects a wrong row of v, or leaves out columns of it.
    """
    case, random = trial.case, trial.random("columns")
    used = min(case.seqlen_k, case.headdim)
    columns, keys = random.order(case.headdim)[-used:], random.order(case.seqlen_k)[:used]
    columns[0] = case.headdim - 1 if case.headdim - 1 not in columns else columns[0]  # always use the last column
    k = torch.zeros(case.seqlen_k, case.headdim, device=trial.device)
    k[keys, columns] = 1.0
    wanted = keys[random.integers((case.seqlen_q,), 0, used - 1).long()]
    q = k[wanted] * (WINS / case.scale)
    x = trial.x
    x = x.with_(
        q=q[None, :, None].expand_as(x.q).to(case.dtype).contiguous(),
        k=k[None, :, None].expand_as(x.k).to(case.dtype).contiguous(),
    )
    want = x.v[:, wanted].repeat_interleave(case.nheads // case.nheads_k, dim=2)
    check_copied(trial, trial.run(x).out, want, "should be v of the key with the same column:")


@law(headdim_v=True, shared_kv=False, needs=("headdim_v", "own v"), bug="boundaries")
def test_columns_of_v_are_their_own(trial):
    """A column of out depends on that column of v alone, and a column of dv on that column of dout.

    With the columns of v and dout in reverse order, those of out and dv are in reverse order, and
    all else agrees within the budget of both. If some columns of v are NaN, the other columns of
    out keep their bits, or stay within the budget if they are not declared repeatable. headdim_v
    differs from headdim: a loop that ends at the wrong one of them leaves out columns or reaches
    others.
    """
    x, backward = trial.x, trial.backward
    before, expected = trial.run(backward=backward), trial.expected(backward=backward)
    reversed_ = x.with_(v=x.v.flip(-1).contiguous(), dout=x.dout.flip(-1).contiguous())
    for name, got in trial.run(reversed_, backward=backward).items():
        pair = (getattr(before, name), getattr(expected.sigma, name), getattr(expected.want, name))
        other, sigma, right = (t.flip(-1) for t in pair) if name in ("out", "dv") else pair
        check_agree(trial, name, got, other, sigma, "with the columns in another order it is", right=right)
    if trial.case.headdim_v > 1 and bits.keeps_when_others_change(trial):
        columns = torch.arange(trial.case.headdim_v, device=trial.device)
        kept = columns < trial.random("columns").number(1, trial.case.headdim_v - 1)
        kept = kept if trial.case.seed % 2 else ~kept
        after = trial.run(x.with_(v=x.v.masked_fill(~kept, torch.nan)))
        own = Outputs(out=torch.where(kept, after.out, before.out))
        check_unchanged(trial, before, own, "as other columns of v became NaN it should still be")


@law(bias=False, sinks=COUNTED, stretch=LONG, seqlen_q=(200, None), seqlen_k=(200, None), share=0.1, bug="masks")
def test_long_sequences_see_their_keys(trial):
    """With q = 0, exp(lse) counts the keys of each query in long sequences, under every mask.

    Other laws would be slow at these lengths. Bugs that begin at the tenth tile, or where an offset
    overflows, do not show with 100 keys. Without lse, out counts the keys, column by column.
    """
    check_seen(trial)


@law(needs=("cross",), cross=True, **BEYOND_16_BITS, **with_sizes(seqlen_q=1, seqlen_k=BEYOND))
def test_keys_beyond_65535(trial):
    """Each of 65,601 keys counts: an index of 16 bits wraps around at 65,536.

    With q = 0, exp(lse) is the number of keys. Without lse, only keys from 65,536 on have a value
    there, and out is its mean. Then the first and the last key get all the weight, and out, lse and
    every gradient are within the error budget.
    """
    _not_in_the_emulator(trial)
    trial.needs(bool(trial.visible().all()))
    if trial.impl.lse is not None:
        check_seen(trial)
    else:
        late = of_late_values(trial.x)
        check_budget(trial, trial.run(late), late)
    x = trial.tied(of_two_keys(trial.x, trial.case.scale))
    check_budget(trial, trial.run(x, backward=trial.backward), x)


@law(needs=("cross", "not causal"), cross=True, causal=False, **BEYOND_16_BITS,
     **with_sizes(seqlen_q=BEYOND, seqlen_k=3))  # fmt: skip
def test_queries_beyond_65535(trial):
    """With 65,601 queries every row is computed, and those after 65,535 reach dk and dv.

    Results are within the error budget. dout is 0 but for the last 80 rows, so that the sums over
    queries are short.
    """
    _not_in_the_emulator(trial)
    x = of_some_queries(trial.x)
    check_budget(trial, trial.run(x, backward=trial.backward), x)


@law(**BEYOND_16_BITS, **with_sizes(batch=BEYOND, seqlen_q=2, seqlen_k=2))
def test_batches_beyond_65535(trial):
    """With 65,601 batches, results are within the error budget, or the call raises an error.

    The y and the z of a CUDA grid end at 65,535: a launch that fails unnoticed leaves results as
    they were.
    """
    _right_or_refused(trial)


@law(**BEYOND_16_BITS, **with_sizes(nheads=BEYOND, nheads_k=BEYOND, seqlen_q=2, seqlen_k=2))
def test_heads_beyond_65535(trial):
    """With 65,601 heads, results are within the error budget, or the call raises an error.

    The y and the z of a CUDA grid end at 65,535, as for batches.
    """
    _right_or_refused(trial)


def _right_or_refused(trial: Trial) -> None:
    _not_in_the_emulator(trial)
    trial.needs(not trial.meter.refusals)  # another case would be refused, too
    got = trial.caller.answer(trial.caller.laid_out(trial.x), backward=trial.backward)
    trial.needs(got is not None)
    check_budget(trial, got)


def _not_in_the_emulator(trial: Trial) -> None:
    """Raise Undecided on a CPU for kernels that are emulated there, which takes up to a minute."""
    if trial.impl.traced and trial.device == "cpu":
        raise Undecided("65,601 rows or blocks take too long in the emulator", Reason.LAW_OF_OTHER_DEVICE)
