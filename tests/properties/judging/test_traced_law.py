"""The law that traces kernels on the CPU: which implementations it judges, its message, and cases
without a launch.
"""

import re
from dataclasses import replace

import pytest

from flash_attest.impls import ContractError, torch_math
from flash_attest.impls.contract.loading import from_file
from flash_attest.mutants import ALL
from flash_attest.mutants.cuda.example import BARRIERS, planted
from flash_attest.mutants.judging import judge_mutant, of_mutant, plan
from flash_attest.mutants.mutant import build
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED
from flash_attest.properties.law import laws
from tests.places import ROOT
from tests.trials import lines

LAW = laws()["test_no_race_is_traced"]

pytestmark = pytest.mark.usefixtures("gxx")


@pytest.fixture(scope="module")
def flash():
    (entry,) = from_file(str(ROOT / "examples/flash_forward.py"))
    return entry.impl


@pytest.mark.parametrize("devices, traced", [({"cuda"}, True), ({"cpu"}, "yes"), ({"cpu"}, 1)])
def test_traced_is_a_promise_about_the_cpu(devices, traced):
    with pytest.raises(
        ContractError, match=re.escape(f'traced={traced!r}: should be False, or True with "cpu" among the devices')
    ):
        replace(torch_math.IMPL, devices=devices, traced=traced)


def test_it_passes_for_a_correct_kernel_and_states_how_many_cases(flash):
    result = judge(LAW, flash, Plan(examples=20, try_contract=False))
    assert result.verdict == PASS
    assert re.fullmatch(
        r"no race in 10 cases: \d+ heads, batch \d+, .* tiles, causal, forward only; 10 launches",
        result.reason,
    )


def test_it_is_judged_on_the_cpu_wherever_the_run_is(flash):
    """A machine with a GPU also has a CPU. An implementation that is not traced is refused
    there.
    """
    assert judge(LAW, flash, Plan(device="cuda", examples=4)).verdict == PASS
    other = judge(LAW, replace(torch_math.IMPL, devices={"cuda"}), Plan(device="cuda", examples=4))
    assert (other.verdict, other.reason) == (
        REFUSED,
        "declares no kernels that can be traced here (traced=True)",
    )


def test_kernels_that_are_traced_in_another_process_are_refused_with_what_to_do():
    """Our kernels in Triton and Numba choose the GPU or the emulator when they are imported."""
    hidden = {"cpu": "the emulator runs its kernels where no GPU is visible"}
    impl = replace(torch_math.IMPL, devices={"cuda"}, unavailable=hidden)
    result = judge(LAW, impl, Plan(device="cuda"))
    assert (result.verdict, result.reason) == (
        REFUSED,
        f"declares no kernels that can be traced here (traced=True); {hidden['cpu']}",
    )


def test_its_message_shows_both_lines_and_replays():
    mutant = next(m for m in ALL if m.name == "cuda_next_tile_is_loaded_over_the_last")
    result = judge_mutant(mutant, replace(plan(), try_contract=False))
    assert result.verdict == FAIL
    assert re.fullmatch(
        r"race: dynamic shared memory\[\d+\], .*, no barrier between, flash_forward.cu:\d+ and flash_forward.cu:\d+",
        result.reason,
    )
    observed = result.message.split("Observed\n")[1]
    assert re.search(r"flash_forward.cu:\d+ +thread \d+ of block 0 writes +factor\[threadIdx.x\] = ", observed)
    assert re.search(r"flash_forward.cu:\d+ +thread \d+ of block 0 reads +float sum = factor\[row\]", observed)
    assert "If two threads of a launch access the same byte, both read it" in result.message
    assert "--case 'seqlen_q=" in result.replay


def plan_of(mutant, **changed):
    """Return the plan for a mutant, which goes on after a failure."""
    return replace(of_mutant(mutant, plan()), goes_on=True, try_contract=False, **changed)


# --- findings are a set ---------------------------------------------------------------------------

TWO_RACES = planted(
    "a_race_of_equal_values_beside_one_of_two_tiles",
    (
        ("    load_tile(Q, q,", "    if (threadIdx.x < 2) factor[0] = 0.0f;\n    load_tile(Q, q,"),
        (
            f"        __syncthreads();  {BARRIERS[3]}",
            f"        if (first_key + TILE >= keys) __syncthreads();  {BARRIERS[3]}",
        ),
    ),
    "any case shows two threads that write one value; the next tile that is loaded over the last needs two tiles",
)


def test_a_harmless_race_hides_no_other(patient):
    """The smallest case shows only one race, in which both threads write the same value."""
    result = judge(LAW, build(TWO_RACES), plan_of(TWO_RACES, examples=8))
    assert result.verdict == FAIL
    two_tiles = parse_case(result.smallest)
    assert (two_tiles.seqlen_k, two_tiles.products) == (33, 33)
    observed = lines(result.message.split("Observed\n")[1].split("Suggests")[0])
    (count,) = (line for line in observed if "each with its smallest case" in line)
    races = [line for line in observed if line.startswith("race: ")]
    assert count == f"{len(races)} findings in 4 cases, each with its smallest case" and result.reason == races[0]
    values = [line.partition(";")[0] for line in observed if line.startswith("the write ")]
    assert values == ["the write changed the value", *["the write left the value as it was"] * (len(races) - 1)]
    cases = [parse_case(line.rpartition(": ")[2]) for line in observed if line.startswith("smallest case")]
    assert cases[0] == two_tiles and cases[1].products == 1


def test_an_error_hides_no_finding(patient):
    """The kernel for small head dims races. The other kernels refuse what the implementation
    declares.
    """
    racy = build(TWO_RACES)

    def forward(q, *inputs, **options):
        if q.shape[3] > 64:
            raise RuntimeError("no tile for this head dim")
        return racy.forward(q, *inputs, **options)

    result = judge(LAW, replace(racy, forward=forward), plan_of(TWO_RACES, examples=40))
    assert result.verdict == FAIL and result.reason == "forward raises RuntimeError: no tile for this head dim"
    observed = lines(result.message.split("Observed\n")[1])
    at = observed.index("also found:")
    assert re.match(r"race: .* \(smallest case: seqlen_q=\d+", observed[at + 1])


def test_a_promise_of_traced_kernels_that_launches_none_is_broken():
    empty = replace(torch_math.IMPL, traced=True)
    result = judge(LAW, empty, Plan(examples=4))
    assert result.verdict == FAIL and result.reason.startswith("traced=True, but no traced kernel was launched")


# --- a value law that fails -----------------------------------------------------------------------

VALUES = laws()["test_out_matches_the_definition"]
SCALED_TWICE = planted(
    "scores_are_scaled_twice",
    (("? softmax_scale * sum :", "? softmax_scale * softmax_scale * sum :"),),
    "softmax_scale is applied twice",
)


def message_of(mutant, **changed):
    return judge(VALUES, build(mutant), plan_of(mutant, examples=10, **changed))


def test_wrong_values_of_a_racy_kernel_show_the_race():
    """Threads run in one order on a CPU, so repeating gives the same wrong values each time."""
    mutant = next(m for m in ALL if m.name == "cuda_scores_are_read_before_they_are_written")
    result = message_of(mutant)
    lines = r"flash_forward.cu:\d+ and flash_forward.cu:\d+"
    assert result.verdict == FAIL and re.search(rf" is nan, should be .* \(race, {lines}\)$", result.reason)
    observed = result.message.split("Observed\n")[1].split("Suggests")[0]
    assert re.search(rf"  traced:\n    race: dynamic shared memory\[\d+\], .*, no barrier between, {lines}\n", observed)
    assert "repeating shows no race" not in observed and "docs/why/bugs.md#races" in result.message


def test_wrong_values_without_a_race_were_traced():
    result = message_of(SCALED_TWICE)
    assert result.verdict == FAIL and "race" not in result.reason
    assert "  traced (1 launch): no race, and no access out of bounds\n" in result.message
    assert "repeating shows no race" not in result.message and "docs/why/bugs.md#races" not in result.message


def test_a_harmless_race_explains_no_wrong_value():
    """The race is listed, but the headline and the suggestion are those of the wrong values."""
    harmless = ("    load_tile(Q, q,", "    if (threadIdx.x < 2) factor[0] = 0.0f;\n    load_tile(Q, q,")
    both = planted("scores_are_scaled_twice_beside_a_harmless_race", (*SCALED_TWICE.edits, harmless), "two faults")
    result = message_of(both)
    assert result.verdict == FAIL and "race" not in result.reason
    observed = lines(result.message.split("Observed\n")[1].split("Suggests")[0])
    at = observed.index("traced, and no cause of wrong values:")
    assert observed[at + 1].startswith("race: ") and "the write left the value as it was" in observed[at + 4]
    assert "docs/why/bugs.md#races" not in result.message


def test_what_is_too_large_is_not_traced(monkeypatch):
    monkeypatch.setattr("flash_attest.properties.judging.traced.MOST_CHOSEN", 1)
    result = message_of(SCALED_TWICE, case=parse_case("seqlen_q=1 seqlen_k=2 headdim=8"))
    assert result.verdict == FAIL and "  not traced: the case is too large\n" in result.message


def test_kernels_that_cannot_be_traced_are_judged_by_repeats():
    wrong = replace(torch_math.IMPL, forward=lambda q, *x, **options: (q, q[..., 0].transpose(1, 2)))
    result = judge(VALUES, wrong, Plan(examples=4, try_contract=False))
    assert result.verdict == FAIL and "repeating shows no race" in result.message and "traced" not in result.message
