"""Judges a right implementation after an import, as the import may have changed what no watch sees.

A file may, for example, register its own kernel for torch's matrix product. The oracle would then
be wrong, and every implementation with it.
"""

from __future__ import annotations

import math

import torch

from flash_attest.impls import Implementation, Supports
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL
from flash_attest.properties.law import laws
from flash_attest.properties.state.imports import WHAT

LAW = "test_out_matches_the_definition"
CASE = "seqlen_q=3 seqlen_k=5 headdim=8 dtype=float32"


def problem() -> str:
    """Return how a right implementation fails in this process, in words, or "". It takes 10 ms."""
    torch.set_num_threads(1)  # a fork lacks the threads of OpenMP
    plan = Plan(case=parse_case(CASE), try_contract=False, goes_on=False)
    try:
        result = judge(laws()[LAW], IN_PYTHON, plan)
    except Exception as error:
        return f"{WHAT} makes the suite raise {type(error).__name__}: {error}"
    # Without memory the verdict is unknown, which says nothing about the import.
    return f"{WHAT} makes a right implementation fail: {result.reason}" if result.verdict == FAIL else ""


def _forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute attention of one head in Python's numbers. No operator of torch takes part."""
    (keys,), (values,) = k.transpose(1, 2)[0].tolist(), v.transpose(1, 2)[0].tolist()
    out = []
    for (query,) in q[0].tolist():
        scores = [sum(map(float.__mul__, query, key)) / math.sqrt(len(query)) for key in keys]
        p = [math.exp(score - max(scores)) for score in scores]
        out.append([[sum(map(float.__mul__, p, column)) / sum(p) for column in zip(*values, strict=True)]])
    return torch.tensor([out], dtype=q.dtype)


IN_PYTHON = Implementation(
    name="in_python", forward=_forward, supports=Supports(dtypes={torch.float32}, headdims={8}, cross=True)
)
