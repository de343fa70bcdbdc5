"""Checks on buffers of a call: the keys that it appends, and rows that belong to no sequence."""

from __future__ import annotations

import torch

from flash_attest.impls.contract.plan import Plan
from flash_attest.impls.contract.tensors import Outputs
from flash_attest.properties.checks.pictures import number, plural
from flash_attest.properties.failures import LawBroken
from flash_attest.races.bits import bits


def check_appended(name: str, now: torch.Tensor, before: torch.Tensor, new: torch.Tensor, plan: Plan) -> None:
    """Check that a call has written new keys into their rows of a cache, and nothing else.

    now, before: k or v, in the public layout. new: the keys that were handed, in the same layout.
    """
    should = before.clone()
    plan.append(should, new)
    rows = [tensor.flatten(0, 1) for tensor in (now, should, before)]
    wrong = (bits(rows[0]) != bits(rows[1])).flatten(1).any(dim=1)
    if not bool(wrong.any()):
        return
    row = int(wrong.nonzero()[0])
    at = tuple(int(i) for i in (bits(rows[0][row]) != bits(rows[1][row])).nonzero()[0])
    got, want, was = (tensor[row][at].item() for tensor in rows)
    where = f"h={at[0]} d={at[1]}"
    unwritten = f" (it was {number(was)})" if was != got else ", which it was before the call"
    raise LawBroken(
        f"{name} of {_owner(row, plan)} at {where} is {number(got, want)} after the call, should be {number(want, got)}"
        f"{unwritten}: {plural(int(wrong.sum()), 'row')} of {len(wrong)} wrong",
        plan.words,
    )


def _owner(row: int, plan: Plan) -> str:
    """Return whose row of a cache this is, in words."""
    for rows, new in ((plan.new, True), (plan.k_rows, False)):
        found = (rows == row).nonzero() if rows is not None else ()
        if len(found) and not (new and row in plan.k_theirs):
            b, j = (int(i) for i in (plan.k_rows == row).nonzero()[0])
            return f"{'new ' * new}key {j} of batch {b}"
    if row in plan.k_theirs:
        return "a neighbour's new key" if plan.new is not None and row in plan.new else "a neighbour's key"
    return "a row that belongs to no sequence"


def check_zero(outputs: Outputs, words: str) -> None:
    """Check that all outputs are 0, lse aside. They are rows that belong to no sequence."""
    for name, tensor in outputs.items():
        if name in ("lse", "dsink"):
            continue
        wrong = ~(tensor == 0)
        if bool(wrong.any()):
            at = tuple(int(i) for i in wrong.nonzero()[0])
            rows = wrong[0].flatten(1).any(dim=1)
            raise LawBroken(
                f"{name} of a row that belongs to no sequence is {number(tensor[at].item())}, should be 0 "
                f"({int(rows.sum())} of {plural(len(rows), 'row')} wrong)",
                words,
                suggests='rows behind the end are not written, or are computed: declare slack_rows="undefined" if the '
                "caller never reads them",
            )
