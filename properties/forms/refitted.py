"""Changes a call of a form in place: its neighbours, its lengths; and names the rows of nobody."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from flash_attest.impls.contract.plan import Plan, index_of
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs, public_input
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.fitting import MULTIPLES
from flash_attest.properties.cases.random_tensors import RandomTensors
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import AnotherCase
from flash_attest.properties.forms import plan_of
from flash_attest.properties.trial import Trial


def turned(handed: Inputs) -> dict[str, torch.Tensor]:
    """Write the lengths and tables of a call for its sequences in another order: the last is first.

    Returns those that were there, by name. The sequences then lie elsewhere in the same rows.
    """
    tables = {name: getattr(handed, name) for name in handed.plan.tables}
    before = {name: table.clone() for name, table in tables.items()}
    for name, table in tables.items():
        if name.startswith("cu_"):
            table[1:] = before[name].diff().roll(1).cumsum(0)
        else:
            table.copy_(before[name].roll(1, 0))
    return before


def shorter(trial: Trial, handed: Inputs) -> Case:
    """Return the case with shorter sequences. Draws another case if none is supported."""
    case, fixed_q = trial.case, handed.cache_seqlens is not None
    for less in MULTIPLES:
        seqlen_q = case.seqlen_q if fixed_q else max(1, case.seqlen_q - less)
        other = case.but(seqlen_q=seqlen_q, seqlen_k=case.seqlen_k - less) if case.seqlen_k > less else case
        if other != case and unsupported(trial.impl, other) is None:
            return other
    raise AnotherCase


def refitted(impl: Implementation, case: Case, x: Inputs, into: Plan) -> Plan:
    """Return the plan of a case with shorter sequences, over the buffers of another plan.

    Rows that are no longer needed belong to nobody. Draws another case if sequences do not fit.
    """
    plan = plan_of(impl, case, x)
    spare = [big - small for big, small in zip(into.k_shape[1:], plan.k_shape[1:], strict=True)]
    if impl.supports.form in ("padded", "cache") and spare[0] > 0:
        plan = plan_of(impl, case.but(slack=case.slack + spare[0]), x)
    if (plan.q_shape[1:], plan.k_shape[1:]) != (into.q_shape[1:], into.k_shape[1:]):
        raise AnotherCase
    if plan.q_shape[0] > into.q_shape[0] or plan.k_shape[0] > into.k_shape[0]:
        raise AnotherCase
    tables = {name: _widened(table, into.tables[name].shape) for name, table in plan.tables.items()}
    return replace(plan, q_shape=into.q_shape, k_shape=into.k_shape, tables=tables, numbers=into.numbers)


def _widened(table: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return the table with as many columns as another one."""
    if table.shape[0] != shape[0] or table.shape[-1] > shape[-1]:
        raise AnotherCase
    if table.shape == shape:
        return table
    return torch.cat([table, table.new_zeros(len(table), shape[1] - table.shape[1])], dim=1)


def nobodys(plan: Plan) -> Plan:
    """Return the plan as if the rows that belong to nobody were the rows of one sequence."""
    rows = {}
    for side, shape in (("q", plan.q_shape), ("k", plan.k_shape)):
        taken = torch.cat([getattr(plan, f"{side}_rows").flatten(), getattr(plan, f"{side}_theirs")])
        free = torch.ones(math.prod(shape), dtype=torch.bool)
        free[taken] = False
        rows[f"{side}_rows"] = free.nonzero().flatten()[None]
    return replace(plan, **rows)


def replace_neighbours(impl: Implementation, handed: Inputs, random: RandomTensors, value: float | None) -> None:
    """Replace the rows of neighbours by a value, or by numbers up to 10.

    Where there are sinks, dout and dlse of neighbours stay 0, as a dsink sums over them.
    """
    plan = handed.plan
    for name in ("q", "k", "v", *(() if handed.sinks is not None else ("dout", "dlse"))):
        if (tensor := getattr(handed, name)) is None:
            continue
        shape, _, rows = plan.side(name)
        public = tensor.transpose(-1, -2) if name == "dlse" else public_input(impl, name, tensor)
        rows = rows.to(tensor.device)
        other = random.uniform((len(rows), *public.shape[len(shape) :]), -10, 10)
        public[index_of(shape, rows)] = (other if value is None else torch.full_like(other, value)).to(tensor.dtype)
