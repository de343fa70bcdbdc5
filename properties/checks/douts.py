"""Finds special douts for which a wrong gradient is right, so that tests with them miss the bug."""

from __future__ import annotations

import torch

from flash_attest import oracle
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.trial import Trial


def where_it_shows(trial: Trial, name: str, x: Inputs, **changed) -> list[str]:
    """Return lines that say for which dout the gradient `name` is right, and for which wrong."""
    right, wrong = [], []
    for words, dout in _douts(x.dout).items():
        inputs = x.with_(dout=dout.contiguous())
        got = getattr(trial.run(inputs, backward=True, **changed), name)
        want = trial.want(inputs, backward=True, **changed)
        sigma = getattr(trial.budget(want, inputs, backward=True, **changed), name)
        score = oracle.score(got, getattr(want, name), sigma, got.dtype, trial.form)
        (right if score.within else wrong).append(words)
    lines = [f"{name} is right with {' or '.join(right)}, which would hide this mistake"] if right else []
    return [*lines, f"{name} is wrong with {' and '.join(wrong)}, too"] if wrong else lines


def _douts(dout: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return substitutes for dout (b, sq, h, d), by their descriptions."""
    others = {"dout = 1": torch.ones_like(dout)}
    if (n := dout.shape[1]) > 1:
        first, last = torch.zeros_like(dout), torch.zeros_like(dout)
        first[:, 0], last[:, -1] = dout[:, 0], dout[:, -1]
        others |= {
            "the same dout in every query": dout[:, :1].expand_as(dout),
            "dout = 0 but in query 0": first,
            f"dout = 0 but in query {n - 1}": last,
        }
    return others
