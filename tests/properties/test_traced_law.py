"""The law that traces kernels on the CPU: which implementations it judges, its message, and a promise without kernels."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from impls import ContractError, torch_math
from impls.registry import from_file
from mutants import ALL
from mutants.judging import judge_mutant, plan
from properties.judging.judge import judge
from properties.judging.plan import Plan
from properties.judging.verdict import FAIL, PASS, REFUSED
from properties.law import laws

LAW = laws()["test_no_race_is_traced"]
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("gxx")


@pytest.fixture(scope="module")
def flash():
    (entry,) = from_file(str(ROOT / "docs/examples/flash_forward.py"))
    return entry.impl


@pytest.mark.parametrize("devices, traced", [({"cuda"}, True), ({"cpu"}, "yes"), ({"cpu"}, 1)])
def test_traced_is_a_promise_about_the_cpu(devices, traced):
    with pytest.raises(
        ContractError, match=re.escape(f'traced={traced!r}: should be False, or True with "cpu" among the devices')
    ):
        replace(torch_math.IMPL, devices=devices, traced=traced)


def test_it_passes_for_a_correct_kernel_and_states_how_many_cases(flash):
    result = judge(LAW, flash, Plan(examples=20))
    assert result.verdict == PASS and re.fullmatch(r"none for 10 cases traced, \d+ launches", result.reason)


def test_it_is_judged_on_the_cpu_wherever_the_run_is(flash):
    """A GPU runner has a CPU, too. An implementation that is not traced is refused there, not unknown."""
    assert judge(LAW, flash, Plan(device="cuda", examples=4)).verdict == PASS
    other = judge(LAW, replace(torch_math.IMPL, devices={"cuda"}), Plan(device="cuda", examples=4))
    assert (other.verdict, other.reason) == (
        REFUSED,
        "declares no kernels that can be traced (traced=True)",
    )


def test_its_message_shows_both_lines_and_replays():
    mutant = next(m for m in ALL if m.name == "cuda_next_tile_is_loaded_over_the_last")
    result = judge_mutant(mutant, plan())
    assert result.verdict == FAIL
    assert re.fullmatch(
        r"race: dynamic shared memory\[\d+\], .*, no barrier between, flash_forward.cu:\d+ and flash_forward.cu:\d+",
        result.reason,
    )
    observed = result.message.split("Observed\n")[1]
    assert re.search(r"flash_forward.cu:\d+ +thread \d+ of block 0 writes +factor\[threadIdx.x\] = ", observed)
    assert re.search(r"flash_forward.cu:\d+ +thread \d+ of block 0 reads +float sum = factor\[row\]", observed)
    assert "No two threads of a launch access the same byte" in result.message
    assert "--case 'seqlen_q=" in result.replay


def test_a_promise_of_traced_kernels_that_launches_none_is_broken():
    empty = replace(torch_math.IMPL, traced=True)
    result = judge(LAW, empty, Plan(examples=4))
    assert result.verdict == FAIL and result.reason.startswith("traced=True, but no traced kernel was launched")
