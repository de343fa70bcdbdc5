"""Lengths and head dims that are not multiples of a tile: tails, padding, columns."""

import torch

from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.inputs import WINS
from flash_attest.properties.cases.strategies import LONG, edges
from flash_attest.properties.checks.comparisons import check_budget, check_copied
from flash_attest.properties.checks.counts import check_counts
from flash_attest.properties.law import law

EDGES = set(edges(2**14))


@law(causal=False, bias=False, needs=("not causal", "lse"), bug="boundaries")
def test_padding_keys_count_nothing(trial):
    """With q = 0, exp(lse) is seqlen_k in every row, as every key has the same weight.

    The last key may be anywhere in its tile. A padding key that counts with score 0 makes exp(lse)
    larger by one, and a missing tail makes it smaller.
    """
    check_counts(trial, trial.zeroed("q"), trial.visible())


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
    causal=False, bias=False, softmax_scale=False, needs=("not causal",), regime=("spread", "large"), stretch=LONG,
    bug="boundaries",
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


@law(bias=False, needs=("lse",), stretch=LONG, seqlen_q=(200, None), seqlen_k=(200, None), share=0.1, bug="masks")
def test_long_sequences_see_their_keys(trial):
    """With q = 0, exp(lse) counts the keys of each query in long sequences, causal or not.

    Other laws would be slow at these lengths. Bugs that begin at the tenth tile, or where an offset
    overflows, do not show with 100 keys.
    """
    check_counts(trial, trial.zeroed("q"), trial.visible())
