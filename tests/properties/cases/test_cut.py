"""Laws that cut a case in two are tried on implementations that accept only multiples of 32."""

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import AnotherCase
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.properties.cases.drawing import multiples_of_32
from tests.trials import implementation

LAWS = ("test_prefix_alone_equals_prefix_of_the_whole", "test_split_keys_merge_by_lse")
SUPPORTS = dict(dtypes={torch.float32}, headdims={8}, causal="optional", cross=True, accepts=multiples_of_32)


def tiled(off=0.0):
    """Return an implementation whose lse and out are too large by `off` if there are 64 keys."""

    def forward(q, k, v, causal=False):
        out, lse = torch_math.forward(q, k, v, causal=causal)
        wrong = off if k.shape[1] == 64 else 0.0
        return out * (1 + wrong), lse + wrong

    return implementation(forward, "tiled", supports=SUPPORTS, lse="natural")


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("off", "verdict"), [(0.0, PASS), (0.1, FAIL)], ids=("right", "wrong"))
def test_it_is_cut_where_the_implementation_takes_both_parts(law, off, verdict):
    result = judge(laws()[law], tiled(off), Plan(examples=20, goes_on=False, try_contract=False))
    assert result.verdict == verdict, result.message
    if verdict == PASS:
        assert result.cases == 20
    else:
        assert "seqlen_k=64" in result.smallest or "seqlen_k=96" in result.smallest


def cut(seqlen, **declared):
    case = Case(batch=1, seqlen_q=seqlen, seqlen_k=seqlen, nheads=1, nheads_k=1, headdim=8, dtype=torch.float32)
    impl = implementation(supports=SUPPORTS | declared)
    return Trial(impl, case, "cpu").cut("here", seqlen, lambda n: [case.but(seqlen_k=n), case.but(seqlen_k=seqlen - n)])


def test_where_every_length_is_taken_the_cut_is_anywhere():
    assert len({cut(seqlen, accepts=None) for seqlen in range(2, 60)} & set(range(1, 60, 2))) > 5
    assert cut(2, accepts=None) == 1


def test_the_parts_are_as_near_as_multiples_allow():
    assert cut(128) in (32, 64, 96) and cut(64) == 32


def test_a_case_that_cannot_be_cut_is_left_out():
    with pytest.raises(AnotherCase):
        cut(32)
