"""Counts the visible keys in out, for implementations without lse as well."""

from __future__ import annotations

import torch

from impls.call import Inputs
from properties.cases.case import Case
from properties.checks import bits
from properties.checks.comparisons import check_same
from properties.trial import Trial

MOST_KEYS = 60  # of one column: then rounding in bfloat16 cannot reach half a key


def countable(case: Case) -> bool:
    """Whether few enough keys share a column of v."""
    return case.seqlen_k <= MOST_KEYS * case.headdim


def check_averages(trial: Trial, x: Inputs, seen: torch.Tensor) -> None:
    """With inputs x that make every score 0, out is the mean of v over the keys that `seen` has, exactly.

    v_j is 1 in column j mod headdim and 0 elsewhere: then out_id times the number of visible keys is how many of them fall
    on column d, a whole number. seen: bool, broadcastable to (b, h, sq, sk). Rows that see no key are left out.
    """
    case = trial.case
    seen = seen.expand(case.batch, case.nheads, case.seqlen_q, case.seqlen_k).double()
    j = torch.arange(case.seqlen_k, device=trial.device)
    marks = torch.nn.functional.one_hot(j % case.headdim, case.headdim)  # (sk, d)
    x = x.with_(v=marks[None, :, None].expand_as(x.v).to(x.v.dtype).contiguous())
    want = (seen @ marks.double()).transpose(1, 2)  # (b, sq, h, d)
    keys = seen.sum(dim=-1).transpose(1, 2)[..., None]  # (b, sq, h, 1)
    got = (trial.run(x).out.double() * keys).round()
    got = torch.where((got - want).abs() <= bits.counted_within(trial, want), want, got)
    check_same(trial, "out*keys", torch.where(keys > 0, got, want), want, "should be")
