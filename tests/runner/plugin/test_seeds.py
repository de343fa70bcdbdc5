"""Implementation, law, profile and seed determine the cases; other plug-ins do not change them."""

import random
import sys
from dataclasses import replace

import pytest
import torch

from flash_attest.impls.contract.loading import from_file
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.law import laws
from tests.properties.cases.drawing import ALL, MULTIPLES
from tests.runs import attest

LAWS = [laws()[name] for name in ("test_out_matches_the_definition", "test_any_layout_equals_the_contiguous_one")]
EXAMPLES = 60
NEIGHBOUR = """
from flash_attest.impls import Implementation
from torch.nn.functional import scaled_dot_product_attention as sdpa

ODD = {numbers}
IMPL = Implementation(name="odd", layout="bhsd", forward=lambda q, k, v: sdpa(q, k, v))
"""


def odd_plugin(folder):
    """Write a plug-in with many numbers from the ranges of lengths, head dims and products of
    cases.

    Hypothesis remembers numbers that it has seen, so each test gets other numbers. They depend on
    the name of the test's folder.
    """
    path = folder / "odd.py"
    path.write_text(NEIGHBOUR.format(numbers=sorted(random.Random(folder.name).sample(range(100, 3000), 800))))
    return path


def cases_of(law, impl, number=0, breaks=lambda case: False):
    """Return the cases on which the law is judged, in order.

    The law is broken if `breaks` says so.
    """
    cases = []

    def hold(trial):
        cases.append(str(trial.case))
        if breaks(trial.case):
            raise LawBroken("broken")

    hold.__name__ = law.name
    plan = Plan(examples=EXAMPLES, seed=number, try_contract=False)
    result = judge(replace(law, function=hold), impl, plan)
    assert result.cases >= EXAMPLES or result.verdict == "fail"
    return cases


@pytest.fixture
def neighbour(tmp_path):
    """neighbour() loads another plug-in, which has new constants, and returns its
    implementation.
    """

    def load():
        (entry,) = from_file(str(odd_plugin(tmp_path)))
        return entry.impl

    yield load
    for name in [name for name in sys.modules if name.startswith("attest_plugin_odd_")]:
        del sys.modules[name]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("judged", (ALL, MULTIPLES), ids=lambda judged: judged.name)
def test_a_neighbour_changes_no_case(law, judged, neighbour):
    alone = cases_of(law, judged)
    other = neighbour()
    assert cases_of(law, judged) == alone
    cases_of(LAWS[0], other)  # judged before it
    assert cases_of(law, judged) == alone
    assert cases_of(law, judged, number=1) != alone


def test_a_neighbour_changes_no_failure(neighbour):
    """Shrinking also draws cases."""

    def breaks(case):
        return case.seqlen_k > 20 and case.headdim % 9 == 1 and case.dtype == torch.bfloat16  # found late

    alone = cases_of(LAWS[0], ALL, breaks=breaks)
    neighbour()
    assert cases_of(LAWS[0], ALL, breaks=breaks) == alone


RECORDING = """
from dataclasses import replace

from tests.plugins.good import IMPL as GOOD


def forward(q, k, v):
    with open({file!r}, "a") as file:
        file.write(f"{{tuple(q.shape)}} {{q.dtype}} {{q.double().sum().item()!r}}\\n")
    return GOOD.forward(q, k, v)


IMPL = replace(GOOD, forward=forward)
"""


@pytest.mark.thorough  # test_a_neighbour_changes_no_case in whole runs
def test_runs_judge_the_same_cases(tmp_path):
    """The first run has one plug-in and one process.

    The other run has a second plug-in, and two workers that judge in another order.
    """
    options = {"alone": (), "beside": (f"--impl-from={odd_plugin(tmp_path)}", "-n", "2")}
    cases = {}
    for name, more in options.items():
        recording, calls = tmp_path / f"{name}.py", tmp_path / f"{name}.calls"
        recording.write_text(RECORDING.format(file=str(calls)))
        run = attest(*more, f"--impl-from={recording}", "properties/test_forward.py", "properties/test_memory.py",
                     report=tmp_path / "report")  # fmt: skip
        assert run.returncode == 0, run.stdout
        cases[name] = {*calls.read_text().splitlines()}
    assert len(cases["alone"]) > 60 and cases["alone"] == cases["beside"]
