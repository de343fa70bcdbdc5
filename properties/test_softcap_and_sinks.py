"""A softcap bounds every score. A sink is one more score of each row, which has no v."""

import math

import torch

from flash_attest.properties.cases.features import SOFTCAPS
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.checks.comparisons import check_budget
from flash_attest.properties.checks.counts import check_counts, check_seen
from flash_attest.properties.law import law

FAR = 2.0**14  # the least score before a softcap; tanh(FAR / 30) is 1 in every dtype


@law(softcap=SOFTCAPS[1:-1], bias=False, sinks=False, needs=("softcap", "lse"), bug="softmax-and-lse")
def test_capped_scores_are_the_cap(trial):
    """If all scores of a row are far above a softcap c, each becomes c; far below -c, each is -c.

    tanh is 1 or -1 there, so lse_i = c + log n_i or -c + log n_i, and exp(lse_i - c) or
    exp(lse_i + c) is the number n_i of visible keys, an integer. Scores are beyond 10^4 before the
    cap. The sign differs from row to row. A call with twice the cap comes before, so that a cap
    which is compiled in or kept from an earlier call shows.
    """
    x, case = trial.x, trial.case
    along = 2.0 ** math.ceil(math.log2(FAR / abs(case.scale)) / 2)  # exact in every dtype
    signs = 2 * trial.random("signs").integers((case.seqlen_q,), 0, 1) - 1
    q, k = torch.zeros_like(x.q), torch.zeros_like(x.k)
    q[..., 0], k[..., 0] = along * signs[:, None].to(q.dtype), along
    scores = math.copysign(case.softcap, case.scale) * signs.double()
    if unsupported(trial.impl, twice := case.but(softcap=2 * case.softcap)) is None:
        trial.of(twice).run(x.with_(q=q, k=k))
    check_counts(trial, x.with_(q=q, k=k), trial.seen(), scores)


@law(sinks=("count",), bias=False, needs=("sinks",), bug="softmax-and-lse")
def test_sink_takes_its_share(trial):
    """With q = 0, exp(lse_i) = n_i + exp(sink_h), and out_i is the sum of n_i rows of v over it.

    exp(sink_h) is 1, 2, 3, ... from head to head, so exp(lse) is an integer. v_j is 1 in column j
    mod headdim_v and 0 elsewhere, so out times that integer counts the keys, column by column.
    """
    check_seen(trial, by_both=True)


@law(sinks=("high",), needs=("sinks",), bug="softmax-and-lse")
def test_high_sink_takes_all(trial):
    """If a sink is 100 above every score, lse is the sink, and out and its gradients are almost 0.

    exp(sink - m) overflows if m is the maximum of the keys' scores alone, and inf times 0 is NaN.
    All results are within the error budget.
    """
    check_budget(trial, trial.run(backward=trial.backward))
