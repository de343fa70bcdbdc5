"""Head dims above 128. On a CPU the laws leave them out, because they take longest to compile."""

import pytest
import torch

from flash_attest.impls.triton.device import EMULATED, lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.triton.attention import FlashAttention2
from flash_attest.impls.triton.declared import implementation
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws

WAYS = {"triton_fa2": FlashAttention2(), "triton_fa2_atomic": FlashAttention2(atomic=True)}
LARGE = {name: implementation(name, way, headdims=range(129, 257)) for name, way in WAYS.items()}
SIZES = "seqlen_q=50 seqlen_k=70 batch=1 nheads=2 nheads_k=1"
CASES = {
    "test_gradients_match_the_definition": f"{SIZES} headdim=256 dtype=float16 causal=true",
    "test_no_race_is_traced": f"{SIZES} headdim=256 dtype=float16 causal=true".replace("nheads=2", "nheads=1"),
    "test_query_sees_exactly_its_prefix": f"{SIZES} headdim=200 dtype=float16 causal=true",
}

pytestmark = [
    pytest.mark.skipif(not EMULATED, reason="on a GPU the laws judge them"),
]


def check(law, name, case):
    result = judge(laws()[law], LARGE[name], Plan(case=parse_case(case), try_contract=False))
    assert (result.verdict, result.cases) == (PASS, 1), result.message or result.reason


@pytest.mark.parametrize("law", CASES)
def test_laws_hold(law):
    check(law, "triton_fa2", CASES[law])


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float32), ids=str)
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("headdim", (129, 192))
def test_laws_hold_in_other_dtypes(headdim, name, dtype):
    words = f"{SIZES} headdim={headdim} dtype={str(dtype).removeprefix('torch.')} bias=matrix"
    check("test_gradients_match_the_definition", name, words)
