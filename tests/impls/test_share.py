"""`share`: an implementation can be judged on a part of the cases and repeats, and on smaller
cases.
"""

import re
from dataclasses import replace

import pytest

from flash_attest.impls import ContractError, torch_math
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.limits import LONG, Limits
from flash_attest.properties.judging.plan import Plan
from tests.impls.runs import results
from tests.runs import python


@pytest.mark.parametrize(
    "share",
    (
        0,
        -1,
        1.5,
        "all",
        None,
        float("nan"),
        {"cpu": 0},
        {"cpu": None},
        {"gpu": 0.5},
        {"cpu": {"cpu": 0.5}},
        1e-12,
        {"cpu": 0.009},
    ),
)
def test_a_share_is_at_least_a_hundredth_and_at_most_1(share):
    with pytest.raises(ContractError, match=re.escape(f"share={share!r}: should be a number from 0.01 to 1, or such")):
        replace(torch_math.IMPL, share=share)


def test_a_share_of_the_cases_and_repeats_is_run():
    plan, whole, tenth = Plan(examples=60, repeats=100), torch_math.IMPL, replace(torch_math.IMPL, share=0.1)
    assert (plan.cases_for(whole, 1.0), plan.cases_for(whole, 0.5), plan.repeats_for(whole)) == (60, 30, 100)
    assert (plan.cases_for(tenth, 1.0), plan.cases_for(tenth, 0.5), plan.repeats_for(tenth)) == (6, 3, 10)
    least = replace(torch_math.IMPL, share=0.01)
    assert (plan.cases_for(least, 1.0), plan.repeats_for(least)) == (2, 2)


def test_a_share_may_be_for_one_device():
    """A kernel may be slow on the CPU only."""
    on_cpu, on_cuda = Plan(examples=60, repeats=100), Plan(device="cuda", examples=60, repeats=100)
    slow = replace(torch_math.IMPL, share={"cpu": 0.1})
    assert (slow.share_on("cpu"), slow.share_on("cuda"), replace(slow, share={}).share_on("cpu")) == (0.1, 1.0, 1.0)
    assert replace(slow, share=0.5).share_on("cpu") == replace(slow, share=0.5).share_on("cuda") == 0.5
    assert (on_cpu.cases_for(slow, 1.0), on_cpu.repeats_for(slow)) == (6, 10)
    assert (on_cuda.cases_for(slow, 1.0), on_cuda.repeats_for(slow)) == (60, 100)


def test_cases_have_a_share_of_the_elements():
    assert Limits.on("cpu", 0.1).elements == Limits.on("cpu").elements // 10
    assert Limits.on("cpu", 0.1).seqlen == Limits.on("cpu").seqlen


@pytest.mark.parametrize(
    ("device", "longest"),
    [("cpu", {1: 1040, 0.5: 1040, 0.2: 520, 0.05: 520}), ("cuda", {1: 8800, 0.5: 8800, 0.2: 4400, 0.05: 4400})],
)
def test_sequences_of_slow_kernels_get_half_as_long_where_a_law_stretches_them(device, longest):
    want = Draws.of(stretch=LONG)
    assert {share: Limits.on(device, share).longest(want, None) for share in longest} == longest


def test_results_show_the_share(tmp_path):
    """The implementation is judged on one tenth of the cases of an equal implementation without a
    share.
    """
    file = tmp_path / "twins.py"
    file.write_text(
        "from dataclasses import replace\nfrom flash_attest.impls import torch_math\n"
        "IMPLS = [replace(torch_math.IMPL, name='whole'), replace(torch_math.IMPL, name='tenth', share=0.1)]\n"
    )
    run = python("-m", "pytest", f"--impl-from={file}", "--device", "cpu", "--hypothesis-profile", "default",
                 "--report", tmp_path / "report", "properties/test_forward.py", "-k", "lse")  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    cases = {name: entry["cases"] for (_, name), entry in results(tmp_path / "report").items()}
    assert cases == {"whole": 16, "tenth": 2}
