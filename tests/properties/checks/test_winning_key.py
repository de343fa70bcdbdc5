"""Whenever test_winning_key_is_copied passes, it has judged something.

In half dtypes, rows with large scores are left out.
"""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import AnotherCase
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.trials import broken

LAW = laws()["test_winning_key_is_copied"]
CASE = Case(seqlen_q=8, seqlen_k=8, regime="selecting")


def zeros(q, k, v, **options):
    return torch.zeros_like(q), torch.zeros(q.shape[0], q.shape[2], q.shape[1])


@pytest.mark.parametrize(
    ("dtype", "headdim"), [(torch.float16, 64), (torch.bfloat16, 64), (torch.bfloat16, 128), (torch.float32, 128)]
)
def test_a_wrong_result_is_seen_with_usual_head_dims(dtype, headdim):
    """In float16 with head dim 64, all winners' scores are 2048, the largest score that may be
    judged.
    """
    case = CASE.but(dtype=dtype, headdim=headdim)
    LAW.hold(Trial(torch_math.IMPL, case, "cpu"))
    wrong = replace(torch_math.IMPL, forward=zeros)
    assert "should be copied from v" in broken(LAW.hold, Trial(wrong, case, "cpu")).headline


def test_a_case_whose_scores_are_all_too_large_decides_nothing():
    with pytest.raises(AnotherCase):
        LAW.hold(Trial(torch_math.IMPL, CASE.but(dtype=torch.float16, headdim=128), "cpu"))
