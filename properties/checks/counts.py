"""Counts the keys that each query sees: in exp(lse), or in out for implementations without lse."""

from __future__ import annotations

import math

import torch

from flash_attest.impls.contract.tensors import Inputs
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

COUNTED = (None, "count")  # the sinks of laws that count: exp(sink) is an integer
LSE_ITSELF = "out has the right keys, so lse itself is wrong"
# A list may name a key once and a kernel count it several times, each key alike.
LSE_OR_LISTS = "out has the right keys, so lse itself is wrong, or each of them counts several times"
MOST_KEYS = 60  # per column of v, so that rounding in bfloat16 stays below half a key


def check_seen(trial: Trial, by_both: bool = False) -> None:
    """Check that each query sees the keys that it should: by lse, or without lse by out.

    lse tells how many they are, and out which. by_both: by out as well as by lse, if `countable`.
    """
    x, seen, has_lse = trial.zeroed("q"), trial.seen(), trial.impl.lse is not None
    trial.needs(has_lse or countable(trial.case))
    if has_lse:
        check_counts(trial, x, seen)
    if not has_lse or (by_both and countable(trial.case)):
        check_averages(trial, x, seen)


def check_counts(trial: Trial, x: Inputs, seen: torch.Tensor, scores: torch.Tensor | float = 0.0) -> None:
    """Check that exp(lse) is the number of keys in `seen`, for inputs that make every score 0.

    The counts are compared exactly. seen: bool, broadcastable to (b, h, sq, sk). A sink adds
    exp(sink), which is an integer in the cases COUNTED. scores (sq): the score of every key in each
    row, which is subtracted from lse.
    """
    lse = trial.run(x).lse
    got = (lse.double() - scores).exp().round()
    keys = seen.sum(dim=-1).double().broadcast_to(got.shape)
    sink = sink_weights(x)
    want = keys + sink
    bad = ~((got - want).abs() <= bits.counted_within(trial, want, scores))
    if not bool(bad.any()):
        return
    at = tuple(int(n) for n in bad.nonzero()[0])
    wrong, seen = wrong_in(trial, "lse", bad), seen.expand(*got.shape, trial.case.seqlen_k)
    reading = Counts.of(trial, seen[at[:2]], (got - sink)[at[:2]])
    score = torch.as_tensor(scores).broadcast_to(got.shape)[at].item()
    headline, line = _words(at, lse[at].item(), got[at].item(), int(keys[at]), int((want - keys)[at]), score)

    def picture_or_meaning() -> tuple[str, list[str]]:
        phrase, lines = picture(trial, x, seen, at, wrong, reading)
        if phrase != RIGHT_KEYS:
            return phrase, lines
        itself = LSE_ITSELF if trial.x.kv_indices is None else LSE_OR_LISTS
        return what_lse_is(trial, "" if score else itself)

    raise LawBroken(
        headline,
        where(trial, "lse", bad),
        line,
        investigate=picture_or_meaning,
        wrong=wrong,
        reading=reading,
    )


def sink_weights(x: Inputs) -> torch.Tensor | float:
    """Return exp(sink) of each head (h, 1), an integer in the cases COUNTED; 0 without sinks."""
    return 0.0 if x.sinks is None else x.sinks.double().exp().round()[:, None]


def _words(at: tuple[int, ...], lse: float, got: float, keys: int, sink: int, score: float) -> tuple[str, str]:
    """Return the first line of a failure, and an observed line, for lse at (b, h, i).

    got: what it counts, where `keys` of the given score and a sink of exp(sink) should count.
    """
    query, should = at[-1], f"{score:g} + ln {keys}" if score else f"ln {keys + sink}"
    is_lse = f"{element_at('lse', at)} is {number(lse)}, should be {should}"
    if score:
        return f"{is_lse}, as query {query} sees {plural(keys, 'key')}", f"each score of this query should be {score:g}"
    if sink:
        headline = f"query {query} counts {number(got)}, should count {keys + sink}"
        headline += f": {plural(keys, 'key')} and a sink of {sink}"
        return headline, f"{is_lse} (every score is 0, so exp(lse) counts the keys and the sink)"
    sees = plural(int(got), "key") if math.isfinite(got) else f"{got} keys"
    headline = f"query {query} sees {sees}, should see {keys}"
    return headline, f"{is_lse} (every score is 0, so exp(lse) counts the keys)"


def countable(case: Case) -> bool:
    """Return whether few enough keys share a column of v, which is not k's."""
    return case.seqlen_k <= MOST_KEYS * case.headdim_v and not case.shared_kv


def check_averages(trial: Trial, x: Inputs, seen: torch.Tensor) -> None:
    """Check that out is the mean of v over the keys in `seen`, for inputs that make every score 0.

    v_j is 1 in column j mod headdim_v and 0 elsewhere. So out_id times the number of visible keys
    is a whole number: how many of these keys are in column d. It is exactly 0 if there are none,
    and else wrong by the declared roundings at most. seen: bool, broadcastable to (b, h, sq, sk).
    Rows that see no key are left out. A sink counts as exp(sink) more keys with v = 0.
    """
    case, sink = trial.case, sink_weights(x)
    seen = seen.expand(case.batch, case.nheads, case.seqlen_q, case.seqlen_k).double()
    j = torch.arange(case.seqlen_k, device=trial.device)
    marks = torch.nn.functional.one_hot(j % case.headdim_v, case.headdim_v)  # (sk, dv)
    x = x.with_(v=marks[None, :, None].expand_as(x.v).to(x.v.dtype).contiguous())
    want = (seen @ marks.double()).transpose(1, 2)  # (b, sq, h, dv)
    none = (seen.sum(dim=-1) == 0).transpose(1, 2)[..., None]  # (b, sq, h, 1)
    keys = (seen.sum(dim=-1) + sink).transpose(1, 2)[..., None]
    got = trial.run(x).out.double() * keys
    right = ((got - want).abs() <= bits.averaged_within(trial, want, keys)) | none
    try:
        check_same(trial, "out*keys", torch.where(right, want, got), want, "should be", defined=True)
    except LawBroken as broken:
        b, i, h, _ = (int(n) for n in (~right).nonzero()[0])
        reading = broken.reading = Counts.of(trial, seen[b, h] != 0)
        wrong = broken.wrong
        if x.sinks is not None:
            broken.observed += [
                f"keys of this query: {int(seen[b, h, i].sum())}, and a sink that counts as {sink[h, 0]:.0f}"
            ]
        broken.investigate = lambda: picture(trial, x, seen != 0, (b, h, i), wrong, reading)
        raise
