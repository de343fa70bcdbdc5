"""Compares results that are given, and cannot be computed again, with the table."""

from __future__ import annotations

from collections.abc import Callable

import torch

from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.instead.answer import answer_of
from flash_attest.properties.instead.matches import statements
from flash_attest.properties.instead.roundings import rounding_of
from flash_attest.properties.instead.table import CHEAP, TABLE

MOST_SCORES = 2**17  # compared with the whole table: a hundred definitions, in a second or two
MOST_SCORES_OF_A_HEAD = 2**22  # compared with a few definitions: 2048 x 2048


def computed_in(
    impl: Implementation,
    case: Case,
    x: Inputs,
    results: dict[str, torch.Tensor],
    form_of: Callable[[Precision], str],
) -> list[str]:
    """Return what a kernel that returned these results computed instead of attention; [] if nothing
    fits.

    Batches and heads are independent, so of large tensors only the first batch and key head are
    compared, and only with definitions that other arguments give.
    """
    large = case.batch * case.nheads * case.seqlen_q * case.seqlen_k > MOST_SCORES
    if large:
        case, x, results = _first_head(case, x, results)
        if case.nheads * case.seqlen_q * case.seqlen_k > MOST_SCORES_OF_A_HEAD:
            return []
    answer = answer_of(impl, case, x, Outputs(**results), form_of)
    if not answer.wrong:
        return []
    return statements([answer], table=CHEAP if large else TABLE) or rounding_of([answer])


def _first_head(case: Case, x: Inputs, results: dict[str, torch.Tensor]) -> tuple[Case, Inputs, dict]:
    """Return the case, inputs and results of the first batch and key head alone."""
    group = case.nheads // case.nheads_k

    def cut(name: str, tensor: torch.Tensor) -> torch.Tensor:
        heads = 1 if name in ("k", "v", "dk", "dv", "kv_indices") else group
        if name in ("sinks", "dsink"):
            return tensor[:heads]
        return tensor[:1, :heads] if name in ("lse", "dlse", "bias", "dbias", "block_mask") else tensor[:1, :, :heads]

    # dsink, and dbias of a bias that is broadcast, are sums over batches and heads.
    sums = set() if case.batch == 1 else {"dsink"}
    if x.bias is not None and x.bias.shape[:2] != (case.batch, case.nheads):
        sums.add("dbias")
    results = {name: cut(name, tensor) for name, tensor in results.items() if name not in sums}
    inputs = Inputs(**{name: cut(name, tensor) for name, tensor in x.items()})
    return case.but(batch=1, nheads=group, nheads_k=1), inputs, results
