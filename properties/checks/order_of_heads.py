"""Recognises results that are right if query heads have the order that is not declared."""

from __future__ import annotations

from dataclasses import replace

from flash_attest.impls.contract.heads import order_of, permuted
from flash_attest.impls.contract.tensors import Outputs
from flash_attest.properties.instead.answer import answer_of
from flash_attest.properties.trial import Trial
from flash_attest.texts import all_of

KEY_HEAD = {"blocks": "h // (nheads // nheads_k)", "modulo": "h % nheads_k"}


def other_order_of_heads(trial: Trial, got: Outputs) -> str:
    """Return what to declare if all results are right in the other order alone; else ""."""
    case, declared = trial.case, trial.impl.gqa_order
    other = "blocks" if declared == "modulo" else "modulo"
    order = order_of(replace(trial.impl, gqa_order="modulo"), case.nheads, case.nheads_k)
    if order is None or _is_right(trial, got):
        return ""
    order = order if declared == "modulo" else order.argsort()
    theirs = replace(trial, impl=replace(trial.impl, gqa_order=other))
    theirs.x = trial.x.with_(**permuted(trial.x, order))
    if not _is_right(theirs, Outputs(**dict(got.items()) | permuted(got, order))):
        return ""
    names = [name for name, _ in got.items()]
    return (
        f"{all_of(names)} {'are' if len(names) > 1 else 'is'} right if query head h reads key head {KEY_HEAD[other]}, "
        f'should be {KEY_HEAD[declared]}: declare gqa_order="{other}"'
    )


def _is_right(trial: Trial, got: Outputs) -> bool:
    return not answer_of(trial.impl, trial.case, trial.x, got, lambda precision: trial.form).wrong
