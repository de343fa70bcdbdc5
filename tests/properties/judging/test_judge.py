"""Verdicts if memory runs out, if the device is absent, or if a plug-in misbehaves."""

import re
from dataclasses import replace
from itertools import count

import pytest
import torch

from flash_attest.impls import ContractError, KnownFailure, torch_math
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import AnotherCase, Reason
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, Result
from flash_attest.properties.law import laws
from flash_attest.runner.green import Asked, not_green
from flash_attest.runner.judge import Judge, compare_with_known

LAW = laws()["test_out_matches_the_definition"]


def judged(function):
    """Return the result of a law that calls function(trial, n), where n counts the calls."""
    calls = count()
    return judge(
        replace(LAW, function=lambda trial: function(trial, next(calls))),
        torch_math.IMPL,
        Plan(examples=20, small=True, try_contract=False),
    )


def out_of_memory():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


@pytest.mark.parametrize("when", [lambda n: True, lambda n: n >= 5, lambda n: n % 2, lambda n: n % 3 == 1])
def test_out_of_memory_in_the_oracle_is_unknown(when):
    result = judged(lambda trial, n: out_of_memory() if when(n) else None)
    assert result.verdict == UNKNOWN and "out of memory on seqlen_q=" in result.reason


@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the documentation"),
    RuntimeError("CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
])  # fmt: skip
def test_a_full_card_is_unknown_whoever_allocates(error):
    """If other processes fill the GPU, the kernel has made no mistake.

    Eight workers once filled an H200.
    """

    def raising(*operands, **options):
        raise error

    impl = replace(torch_math.IMPL, forward=raising)
    result = judge(LAW, impl, Plan(examples=3, try_contract=False))
    assert (result.verdict, result.why, result.reason[:17]) == (UNKNOWN, Reason.RESOURCES, "out of memory on ")
    assert judge(LAW, impl, Plan(examples=3)).reason.startswith("out of memory on ")  # while the contract is tried


def test_an_error_that_only_mentions_memory_is_a_failure():
    def raising(*operands, **options):
        raise RuntimeError("the kernel reads out of its memory")

    result = judge(LAW, replace(torch_math.IMPL, forward=raising), Plan(examples=3, try_contract=False))
    assert result.verdict == FAIL


def test_compiler_errors_at_the_first_call_are_shown():
    def raising(q, k, v, **options):
        raise RuntimeError("fa2.cu does not compile for the CPU:\nfa2.cu:7:1: error: expected ';'")

    problems = conformance.problems(replace(torch_math.IMPL, forward=raising), "cpu")
    assert any("fa2.cu:7:1: error: expected ';'" in problem for problem in problems)


def test_intermittent_out_of_memory_does_not_hide_a_failure():
    def broken(trial, n):
        if n % 2:
            out_of_memory()
        LAW.function(replace(trial, impl=replace(trial.impl, forward=lambda *x, **options: trial.x.q + 1)))

    assert judged(broken).verdict in (FAIL, UNKNOWN)


# --- devices that are absent ----------------------------------------------------------------------

NO_NVCC = "no nvcc found, which compiles the kernels for CUDA tensors"
NOT_HERE = "runs on cpu only; this run judges on cuda"


def elsewhere(folder, **declared):
    """Return the results of the contract check and of a law on a GPU, for a CPU implementation."""
    impl, on_gpu = replace(torch_math.IMPL, devices={"cpu"}, **declared), Plan(device="cuda")
    return [Judge(on_gpu, [], folder, "main").contract(impl), judge(LAW, impl, on_gpu)]


@pytest.mark.parametrize(
    ("declared", "reason"),
    [({}, NOT_HERE), (dict(unavailable={"cuda": NO_NVCC}), f"{NOT_HERE}: {NO_NVCC}")],
)
def test_another_device_is_unknown_with_the_reason(declared, reason, tmp_path):
    assert [(result.verdict, result.reason) for result in elsewhere(tmp_path, **declared)] == 2 * [(UNKNOWN, reason)]


@pytest.mark.parametrize("asked_for", (False, True))
def test_an_absent_device_fails_only_runs_that_asked_for_the_implementation(asked_for, tmp_path):
    results = [result.as_dict() for result in elsewhere(tmp_path, unavailable={"cuda": NO_NVCC})]
    results.append(Result("another", LAW.chapter, LAW.name, PASS).as_dict())
    assert not_green(results, Asked(named=asked_for)) == ("2 could not be decided" if asked_for else "")


# --- laws of another device -----------------------------------------------------------------------

OF_STREAMS = laws()["test_work_waits_on_the_current_stream"]


def test_a_law_of_another_device_is_unknown_and_the_run_stays_green():
    result = judge(OF_STREAMS, torch_math.IMPL, Plan(device="cpu"))
    assert (result.verdict, result.reason) == (UNKNOWN, "law not applicable on cpu, only on cuda")
    held = Result(torch_math.IMPL.name, LAW.chapter, LAW.name, PASS)
    assert not_green([result.as_dict(), held.as_dict()], Asked(named=True)) == ""


def test_a_law_of_a_device_without_the_implementation_is_refused():
    result = judge(OF_STREAMS, replace(torch_math.IMPL, devices={"cpu"}), Plan(device="cpu"))
    assert (result.verdict, result.reason) == (REFUSED, "the law applies on cuda, where this implementation never runs")
    elsewhere = replace(torch_math.IMPL, devices={"cpu"}, unavailable={"cuda": NO_NVCC})
    assert judge(OF_STREAMS, elsewhere, Plan(device="cpu")).verdict == UNKNOWN


@pytest.mark.parametrize(
    "unavailable",
    (
        {"cpu": "no g++ found"},
        {"gpu": "none"},
        {"cuda": ""},
        {"cuda": None},
        {"cuda": " "},
        {"cuda": "a\nb"},
        "cuda",
        None,
    ),
)
def test_unavailable_gives_a_reason_for_each_undeclared_device(unavailable):
    with pytest.raises(
        ContractError, match=re.escape(f"unavailable={unavailable!r}: should give a reason in one line")
    ):
        replace(torch_math.IMPL, devices={"cpu"}, unavailable=unavailable)


@pytest.mark.parametrize(
    "name",
    [
        "out_matches_the_definition",
        pytest.param("outputs_may_be_written_to", marks=pytest.mark.thorough),
        "no_race_is_traced",
    ],
)
def test_a_law_that_discards_every_case_does_not_apply(name, few_tried):
    """It is not green, whether cases are drawn, chosen, or searched for several findings."""

    def discards(trial):
        raise AnotherCase("why not")

    law = replace(laws()[f"test_{name}"], function=discards, needs=(), device=None)
    result = judge(law, torch_math.IMPL, Plan(examples=3, try_contract=False))
    reason = "the law says nothing about any case that the implementation supports: why not"
    assert (result.verdict, result.why, result.reason, result.cases) == (REFUSED, Reason.NO_CASE, reason, 0)


@pytest.mark.parametrize(("law", "scale"), [
    ("negative_scale_is_negated_q", "-1.0"),
    pytest.param("powers_of_four_move_between_q_and_scale", "0.25", marks=pytest.mark.thorough),
])  # fmt: skip
def test_a_case_that_a_law_also_needs_and_is_refused_is_named(law, scale, few_tried):
    def accepts(case):
        return None if case.softmax_scale in (None, 1.0) else "the scale should be 1"

    impl = replace(torch_math.IMPL, supports=replace(torch_math.IMPL.supports, accepts=accepts))
    result = judge(laws()[f"test_{law}"], impl, Plan(examples=2, try_contract=False))
    needs = f"it also needs softmax_scale={scale}, and the scale should be 1"
    assert (result.verdict, result.cases) == (REFUSED, 0) and result.reason.endswith(f"supports: {needs}")


def test_unavailable_is_not_checked_against_invalid_devices():
    with pytest.raises(ContractError) as error:
        replace(torch_math.IMPL, devices=None, unavailable={"cuda": NO_NVCC})
    assert error.value.problems == ["devices=None: should be a subset of {'cuda', 'cpu'}"]


# --- plug-ins that misbehave ----------------------------------------------------------------------


LONG = parse_case("seqlen_q=65 seqlen_k=65 headdim=8")


class Unprintable(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("raised", "headline", "case"),
    [
        (Unprintable(), "forward raises Unprintable: (no message: its __str__ raises)", LONG),
        (SystemExit(3), "forward raises SystemExit: 3", None),  # drawn and shrunk: Hypothesis must not end with it
        (RuntimeError("no"), "forward raises RuntimeError: no", LONG),
    ],
)
def test_any_exception_is_a_failure_with_its_message(raised, headline, case):
    def forward(q, k, v, **options):
        if q.shape[1] > 64:
            raise raised
        return torch_math.forward(q, k, v, **options)

    result = judge(
        LAW, replace(torch_math.IMPL, forward=forward), Plan(examples=60, case=case, goes_on=False, try_contract=False)
    )
    assert (result.verdict, result.reason) == (FAIL, headline)


@pytest.mark.parametrize("first_at", (0, 129))
def test_an_accepts_that_raises_is_a_broken_contract(first_at):
    """`accepts` raises for the first case of the contract check, or only for a drawn case."""

    def accepts(case):
        return {}["nothing"] if case.seqlen_q >= first_at else None

    impl = replace(torch_math.IMPL, supports=replace(torch_math.IMPL.supports, accepts=accepts))
    problems = conformance.problems(impl, "cpu") if first_at == 0 else [judge(LAW, impl, Plan(examples=60)).reason]
    assert problems[0].startswith("supports.accepts raises KeyError: 'nothing' [for seqlen_q=")


def test_what_an_accepts_changes_is_restored_before_inputs_are_built():
    """Else the suite would build inputs of another dtype, and fail itself."""

    def accepts(case):
        torch.set_default_dtype(torch.float16)

    impl = replace(torch_math.IMPL, supports=replace(torch_math.IMPL.supports, accepts=accepts))
    (problem,) = conformance.problems(impl, "cpu")
    assert problem.startswith("supports.accepts sets torch's default dtype to torch.float16")
    biased = laws()["test_biased_attention_matches_the_definition"]
    assert judge(biased, impl, Plan(examples=6)).verdict == PASS
    assert torch.get_default_dtype() == torch.float32


# --- an accepts that leaves no case, or not the usual ones, for the contract ----------------------


def refusing(accepts, forward=torch_math.forward):
    return replace(torch_math.IMPL, forward=forward, supports=replace(torch_math.IMPL.supports, accepts=accepts))


def test_a_contract_without_a_case_is_unknown_and_so_are_its_laws(tmp_path):
    impl = refusing(lambda case: f"regime {case.regime} is too hard")
    before = Judge(Plan(examples=3), [], tmp_path, "main")
    results = [before.contract(impl), judge(LAW, impl, before.plan)]
    reason = "there is no case to try the contract with: regime spread is too hard [for seqlen_q=64 "
    assert [(r.verdict, r.why, r.reason[: len(reason)]) for r in results] == 2 * [(UNKNOWN, Reason.NO_CASE, reason)]
    assert not_green([r.as_dict() for r in results], Asked()) == "2 could not be decided"


@pytest.mark.parametrize(
    "accepts",
    [
        pytest.param(
            lambda case: None if case.regime == "mean" else "means only", marks=pytest.mark.thorough, id="means"
        ),
        pytest.param(
            lambda case: None if case.headdim in range(24, 41) else "head dims of 24 to 40 only", id="head dims"
        ),
    ],
)
def test_the_contract_is_tried_with_whatever_cases_there_are(accepts):
    assert conformance.problems(refusing(accepts), "cpu") == []
    wrong = refusing(accepts, lambda *operands, **options: torch_math.forward(*operands, **options)[0].transpose(1, 2))
    (problem, *_) = conformance.problems(wrong, "cpu")
    assert problem.startswith("forward returns out alone, but lse='natural' is declared")


def test_the_case_of_a_known_failure_is_judged_first():
    """A failure that two drawn cases would miss stays known, and is not taken for mended."""

    def wrong_at_41(q, k, v, **options):
        out, lse = torch_math.forward(q, k, v, **options)
        return out * (1 + (q.shape[1] == 41)), lse

    supports = replace(torch_math.IMPL.supports, bias_grad=False, sink_grad=False, lse_grad=False)
    wrong = replace(torch_math.IMPL, forward=wrong_at_41, backward=None, supports=supports)
    wrong = replace(wrong, known_failures={LAW.name: "twice, #1"})
    known = replace(wrong, known_failures={LAW.name: KnownFailure("twice, #1", "seqlen_q=41 headdim=8 dtype=float32")})
    few = Plan(examples=2)
    assert judge(LAW, wrong, few).verdict == PASS
    result = judge(LAW, known, few)
    compare_with_known(result, known, "cpu")
    assert (result.verdict, result.known, result.smallest[:11]) == (FAIL, "twice, #1", "seqlen_q=41")


KNOWN_CASE = parse_case("seqlen_q=41 headdim=8 dtype=float32")


def of_long_ones(factor, wrong=lambda seqlen: seqlen >= 41, accepts=lambda case: case.seqlen_q < 41):
    """Return what multiplies out by a factor where it is wrong, and is known to be at length 41."""

    def forward(q, k, v, **options):
        out, lse = torch_math.forward(q, k, v, **options)
        return out * (factor if wrong(q.shape[1]) else 1), lse

    supports = replace(torch_math.IMPL.supports, bias_grad=False, sink_grad=False, lse_grad=False)
    supports = replace(supports, accepts=lambda case: None if accepts(case) else "is twice as large, #1")
    listed = {LAW.name: KnownFailure("twice, #1", str(KNOWN_CASE))}
    return replace(torch_math.IMPL, forward=forward, backward=None, supports=supports, known_failures=listed)


def judged_as_known(impl, **plan):
    """Return the result of the law that is known to fail."""
    result = judge(LAW, impl, Plan(try_contract=False, **plan))
    compare_with_known(result, impl, "cpu")
    return result


def test_accepts_may_refuse_the_case_of_a_known_failure_and_all_others_like_it():
    """So what is known to be wrong can be left out of what is drawn, and one law shows it."""
    twice, other = of_long_ones(2), laws()["test_ragged_sizes_match_the_definition"]
    for plan in (dict(examples=2), dict(case=KNOWN_CASE)):  # its replay
        result = judged_as_known(twice, **plan)
        assert (result.verdict, result.known, result.smallest) == (FAIL, "twice, #1", str(KNOWN_CASE))
    assert judge(other, twice, Plan(case=KNOWN_CASE)).reason == "is twice as large, #1"
    assert judge(other, twice, Plan(examples=20)).verdict == PASS


def test_a_law_that_fails_beside_the_left_out_case_of_its_known_failure_fails():
    result = judged_as_known(of_long_ones(2, wrong=lambda seqlen: seqlen >= 5), examples=20)
    assert (result.verdict, result.known, result.why) == (FAIL, "", Reason.NOT_AS_KNOWN)
    assert result.smallest.startswith("seqlen_q=5 ")
    everywhere = judged_as_known(of_long_ones(2, lambda seqlen: seqlen >= 5, lambda case: True), examples=20)
    assert (everywhere.known, everywhere.why) == ("twice, #1", None)


@pytest.mark.parametrize("accepts", [lambda case: case.seqlen_q < 41, lambda case: False], ids=["some", "none"])
@pytest.mark.parametrize("factor", [1, 2])
def test_a_known_failure_whose_case_accepts_refuses_is_seen_to_be_mended(factor, accepts):
    result = judged_as_known(of_long_ones(factor, accepts=accepts), examples=2)
    assert (result.verdict, result.known) == (FAIL, "twice, #1" if factor == 2 else "")
    assert result.reason.startswith("passes, but known_failures lists it") is (factor == 1)


def test_a_law_on_results_that_are_wrong_already_fails_as_known():
    result = Result("tested", LAW.chapter, LAW.name, UNKNOWN, "not judged: out is wrong already", Reason.WRONG_ALREADY)
    listed = replace(torch_math.IMPL, known_failures={LAW.name: "race, #1"})
    compare_with_known(result, torch_math.IMPL, "cpu")
    assert (result.verdict, result.known) == (UNKNOWN, "")
    compare_with_known(result, listed, "cpu")
    assert (result.verdict, result.known, result.why) == (FAIL, "race, #1", None)


@pytest.mark.parametrize(("known", "device", "of_a_pass", "of_a_failure"), [
    ("race, #1", "cuda", FAIL, "race, #1"),
    ({"cpu": "race, #1"}, "cpu", FAIL, "race, #1"),
    ({"cpu": "race, #1"}, "cuda", PASS, ""),
    (KnownFailure("race, #1", every_run=False), "cuda", PASS, "race, #1"),
    ({"cuda": KnownFailure("race, #1", every_run=False)}, "cuda", PASS, "race, #1"),
    ({"cuda": KnownFailure("race, #1", every_run=False)}, "cpu", PASS, ""),
])  # fmt: skip
def test_a_failure_may_be_known_on_one_device_or_need_not_show(known, device, of_a_pass, of_a_failure):
    impl = replace(torch_math.IMPL, known_failures={LAW.name: known})
    passing, failing = (Result("tested", LAW.chapter, LAW.name, verdict, "") for verdict in (PASS, FAIL))
    for result in (passing, failing):
        compare_with_known(result, impl, device)
    assert (passing.verdict, failing.verdict, failing.known) == (of_a_pass, FAIL, of_a_failure)


def test_a_law_of_one_device_is_known_to_fail_on_that_device():
    """Races are traced on the CPU, in a run on a GPU, too."""
    law = laws()["test_no_race_is_traced"]
    impl = replace(torch_math.IMPL, known_failures={law.name: {"cpu": "race, #1"}})
    result = Result("tested", law.chapter, law.name, FAIL, "a race")
    compare_with_known(result, impl, "cuda")
    assert result.known == "race, #1"
