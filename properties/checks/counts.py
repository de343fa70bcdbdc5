"""Counts the keys that each query sees: in exp(lse), or in out for implementations without lse."""

from __future__ import annotations

import math

import torch

from flash_attest.impls.contract.call import Inputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import check_same
from flash_attest.properties.checks.meanings_of_lse import what_lse_is
from flash_attest.properties.checks.pictures import element_at, number, plural, where
from flash_attest.properties.checks.reading import Counts
from flash_attest.properties.checks.visible_keys import RIGHT_KEYS, picture
from flash_attest.properties.checks.wrong import wrong_in
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial

LSE_ITSELF = "out has the right keys, so lse itself is wrong"
MOST_KEYS = 60  # per column of v, so that rounding in bfloat16 stays below half a key


def check_seen(trial: Trial) -> None:
    """Check that each query sees as many keys as it should: by lse, or without lse by out alone."""
    x, seen = trial.zeroed("q"), trial.visible()
    if trial.impl.lse is not None:
        check_counts(trial, x, seen)
        return
    trial.needs(countable(trial.case))
    check_averages(trial, x, seen)


def check_counts(trial: Trial, x: Inputs, seen: torch.Tensor) -> None:
    """Check that exp(lse) is the number of keys in `seen`, for inputs that make every score 0.

    The counts are compared exactly. seen: bool, broadcastable to (b, h, sq, sk).
    """
    lse = trial.run(x).lse
    got = lse.double().exp().round()
    want = seen.sum(dim=-1).double().broadcast_to(got.shape)
    bad = ~((got - want).abs() <= bits.counted_within(trial, want))
    if not bool(bad.any()):
        return
    at = tuple(int(n) for n in bad.nonzero()[0])
    i, g, w = at[-1], got[at].item(), int(want[at].item())
    sees = plural(int(g), "key") if math.isfinite(g) else f"{g} keys"
    wrong, seen = wrong_in(trial, "lse", bad), seen.expand(*got.shape, trial.case.seqlen_k)
    reading = Counts.of(trial, seen[at[:2]], got[at[:2]])

    def picture_or_meaning() -> tuple[str, list[str]]:
        phrase, lines = picture(trial, x, seen, at, wrong, reading)
        return what_lse_is(trial, LSE_ITSELF) if phrase == RIGHT_KEYS else (phrase, lines)

    raise LawBroken(
        f"query {i} sees {sees}, should see {w}",
        where(trial, "lse", bad),
        f"{element_at('lse', at)} is {number(lse[at].item())}, should be ln {w} "
        "(every score is 0, so exp(lse) counts the keys)",
        investigate=picture_or_meaning,
        wrong=wrong,
        reading=reading,
    )


def countable(case: Case) -> bool:
    """Return whether few enough keys share a column of v."""
    return case.seqlen_k <= MOST_KEYS * case.headdim


def check_averages(trial: Trial, x: Inputs, seen: torch.Tensor) -> None:
    """Check that out is the mean of v over the keys in `seen`, for inputs that make every score 0.

    v_j is 1 in column j mod headdim and 0 elsewhere. So out_id times the number of visible keys is
    a whole number: how many of these keys are in column d. It is exactly 0 if there are none, and
    else wrong by the declared roundings at most. seen: bool, broadcastable to (b, h, sq, sk). Rows
    that see no key are left out.
    """
    case = trial.case
    seen = seen.expand(case.batch, case.nheads, case.seqlen_q, case.seqlen_k).double()
    j = torch.arange(case.seqlen_k, device=trial.device)
    marks = torch.nn.functional.one_hot(j % case.headdim, case.headdim)  # (sk, d)
    x = x.with_(v=marks[None, :, None].expand_as(x.v).to(x.v.dtype).contiguous())
    want = (seen @ marks.double()).transpose(1, 2)  # (b, sq, h, d)
    keys = seen.sum(dim=-1).transpose(1, 2)[..., None]  # (b, sq, h, 1)
    got = trial.run(x).out.double() * keys
    right = ((got - want).abs() <= bits.averaged_within(trial, want, keys)) | (keys == 0)
    try:
        check_same(trial, "out*keys", torch.where(right, want, got), want, "should be", defined=True)
    except LawBroken as broken:
        b, i, h, _ = (int(n) for n in (~right).nonzero()[0])
        reading = broken.reading = Counts.of(trial, seen[b, h] != 0)
        wrong = broken.wrong
        broken.investigate = lambda: picture(trial, x, seen != 0, (b, h, i), wrong, reading)
        raise
