"""Helpers that give an implementation, a trial, the failure that a check raises, and the lines of a
message.
"""

import pytest
import torch

from flash_attest.impls import Implementation, Supports, torch_math
from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import AnotherCase, LawBroken
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.law import Law
from flash_attest.properties.trial import Trial

SHAPE = (2, 5, 3, 8)  # b i h d of trial()
AT = (1, 4, 2, 7)  # one of its elements


def implementation(forward=torch_math.forward, name="tested", **changed) -> Implementation:
    supports = changed.pop("supports", dict(dtypes={torch.float32}, headdims={8}))
    return Implementation(name=name, forward=forward, supports=Supports(**supports), **changed)


def trial(regime: str = "spread", tile=None, dtype=torch.float32, **changed) -> Trial:
    c = Case(batch=2, seqlen_q=5, seqlen_k=5, nheads=3, nheads_k=3, headdim=8, dtype=dtype, regime=regime)
    return Trial(implementation(tile=tile, lse="natural", **changed), c, "cpu")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_one(tensor: torch.Tensor, value: float, at=AT) -> torch.Tensor:
    """Return a copy with one element replaced."""
    copy = tensor.clone()
    copy[at] = value
    return copy


def broken(check, *arguments) -> LawBroken:
    """Return the failure that the check raises."""
    with pytest.raises(LawBroken) as caught:
        check(*arguments)
    return caught.value


def fails(law: Law, impl: Implementation, plan: Plan) -> bool:
    """Return whether a drawn case breaks the law. Nothing is shrunk or explained, which takes most
    of the time of `judge`, and the contract is not tried.
    """
    judgement = Judgement(law, impl, plan)
    for case in judgement.drawing.cases:
        try:
            judgement.hold(judgement.trial(case))
        except LawBroken:
            return True
        except AnotherCase:
            continue
    return False


def lines(text: str) -> list[str]:
    """Return the lines without the spaces that align columns."""
    return [" ".join(line.split()) for line in text.splitlines()]
