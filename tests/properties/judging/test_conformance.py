"""The contract check reports problems that concern one size or feature, and laws are judged on the
rest.
"""

from dataclasses import replace

import pytest
import torch

from flash_attest.emulator.errors import NotCovered
from flash_attest.impls import KnownFailure, torch_math
from flash_attest.mutants import ALL, build
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging import conformance, contract_cases
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.runner.bound import laws_of
from flash_attest.runner.judge import Judge, compare_with_known

OUT = laws()["test_out_matches_the_definition"]
BIASED = laws()["test_biased_attention_matches_the_definition"]


def raising(where, **declared):
    """Return torch_math, except that it raises if where(q, k, options) holds."""

    def forward(q, k, v, **options):
        if where(q, k, options):
            raise RuntimeError("invalid configuration argument")
        return torch_math.forward(q, k, v, **options)

    return replace(torch_math.IMPL, name="tested", forward=forward, **declared)


def has_bias(kind):
    return lambda q, k, options: options["bias"] is not None and (options["bias"].shape[2] > 1) == (kind == "matrix")


PARTS = {
    "headdim 64": lambda q, k, options: q.shape[-1] == 64,
    "headdim 64 or more": lambda q, k, options: q.shape[-1] >= 64,
    "a length of 64": lambda q, k, options: 64 in (q.shape[1], k.shape[1]),
    "a length of 64 or more": lambda q, k, options: max(q.shape[1], k.shape[1]) >= 64,
    "more than one head": lambda q, k, options: q.shape[0] * q.shape[2] > 1,
    "dtype float32": lambda q, k, options: q.dtype == torch.float32,
    "dtype float16": lambda q, k, options: q.dtype == torch.float16,
    "bias matrix or bias boolean_matrix": has_bias("matrix"),
    "causal": lambda q, k, options: options["causal"],
    "softmax_scale 0.5, 0.1, 1.0, -0.25": lambda q, k, options: options["softmax_scale"] is not None,
}


REPEATED = ("headdim 64", "a length of 64", "dtype float16", "causal")  # as the ones beside them


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.thorough if part in REPEATED else ()) for part in PARTS]
)
def test_a_problem_in_part_is_reported_and_the_rest_is_judged(part, tmp_path):
    impl, plan = raising(PARTS[part]), Plan(examples=4, small=True)  # one plan tries the contract once
    outcome = conformance.tried(impl, plan)
    assert outcome.judged and outcome.without == part
    shown = part.split(",")[0].replace(" or bias", ", bias")
    assert outcome.problems[0] == f"forward raises RuntimeError: invalid configuration argument   [with {shown}]"
    contract = Judge(plan, [], tmp_path, "main").contract(impl)
    assert contract.verdict == FAIL and f"Its laws are judged without {part}." in contract.message
    result = judge(OUT, impl, plan)
    assert (result.verdict, result.cases) == (PASS, 4), result.message
    assert result.reason == f"judged without {part}, where the contract is broken"


def test_what_one_feature_leaves_undecided_costs_no_other_its_verdict(tmp_path):
    """A kernel may use something that the emulator does not cover, but only with a scale."""

    def forward(q, k, v, **options):
        if options["softmax_scale"] is not None:
            raise NotCovered("brkpt is not covered")
        return torch_math.forward(q, k, v, **options)

    impl = replace(torch_math.IMPL, name="tested", forward=forward)
    plan = Plan(examples=4)
    contract = Judge(plan, [], tmp_path, "main").contract(impl)
    assert (contract.verdict, contract.why) == (UNKNOWN, Reason.NOT_COVERED) and "brkpt" in contract.reason
    scaled = replace(OUT, draws=Draws.of(softmax_scale=True))
    plain = replace(OUT, draws=Draws.of(softmax_scale=False))
    assert [judge(law, impl, plan).verdict for law in (plain, scaled)] == [PASS, UNKNOWN]


def test_a_defect_is_found_beside_a_problem_of_the_contract():
    def forward(q, k, v, **options):
        out, lse = raising(PARTS["headdim 64"]).forward(q, k, v, **options)
        return (out + 1 if q.shape[1] > 16 else out), lse

    result = judge(OUT, replace(torch_math.IMPL, forward=forward), Plan(examples=12, goes_on=False))
    assert result.verdict == FAIL and parse_case(result.smallest).headdim != 64


def test_a_law_that_wants_the_broken_part_alone_is_unknown():
    impl = raising(lambda q, k, options: options["bias"] is not None)
    result = judge(BIASED, impl, Plan(examples=3))
    assert (result.verdict, result.why) == (UNKNOWN, Reason.CONTRACT)
    assert result.reason.startswith("the contract is broken (see contract_is_kept): forward raises RuntimeError")


def test_a_law_that_wants_what_is_not_declared_is_refused():
    """No case is both wanted and supported, whether or not the broken part is left out."""
    plain = replace(torch_math.IMPL.supports, cross=False, bias="none", bias_grad=False)
    impl = raising(PARTS["headdim 64"], supports=plain)
    assert judge(laws()["test_rows_without_keys_give_zero"], impl, Plan(examples=3)).verdict == REFUSED


def test_a_given_case_of_the_broken_part_is_unknown():
    impl = raising(PARTS["headdim 64"])
    plan = Plan()
    given = [judge(OUT, impl, replace(plan, case=parse_case(f"seqlen_q=8 headdim={d}"))) for d in (64, 32)]
    assert [(result.verdict, result.why) for result in given] == [(UNKNOWN, Reason.CONTRACT), (PASS, None)]


def test_a_run_of_one_case_tries_only_what_can_leave_it_out(tmp_path):
    """It tries the plain case, float16, and no value that the case lacks. The contract check itself
    still tries all.
    """
    impl, tried = raising(lambda q, k, options: options["bias"] is not None), []
    case = parse_case("seqlen_q=8 headdim=64 dtype=float16 causal=True")
    plan = Plan(case=case, only_case=True, write_down=tried.append)
    assert judge(OUT, impl, plan).verdict == PASS
    of_contract = [line.partition(" ")[2] for line in tried if "contract" in line]
    assert len(of_contract) == 3 and sum("dtype=float16" in line for line in of_contract) == 1
    contract = Judge(plan, [], tmp_path, "main").contract(impl)
    assert contract.verdict == FAIL and "Its laws are judged without bias vector" in contract.message
    assert judge(OUT, impl, plan).verdict == PASS


GIVEN = {  # a part of PARTS, and a case that has it
    "headdim 64 or more": "headdim=128",
    "a length of 64 or more": "seqlen_q=100 seqlen_k=100",
    "more than one head": "nheads=2",
    "dtype float32": "dtype=float32",
    "dtype float16": "dtype=float16",
    "bias matrix or bias boolean_matrix": "bias=boolean_matrix",
    "causal": "causal=True",
    "softmax_scale 0.5, 0.1, 1.0, -0.25": "softmax_scale=-0.25",
}


@pytest.mark.parametrize("part", GIVEN)
def test_a_run_of_one_case_finds_the_broken_part_that_it_has(part):
    """A value that the check does not try stands behind one that it tries."""
    impl, other = raising(PARTS[part]), {"dtype float32": "dtype=float16"}.get(part, "dtype=float32")
    for fields, want in ((GIVEN[part], Reason.CONTRACT), (other, None)):
        sizes = "".join(f"{size}={n} " for size, n in (("seqlen_q", 8), ("headdim", 32)) if size not in fields)
        plan = Plan(case=parse_case(sizes + fields), only_case=True)
        assert judge(OUT, impl, plan).why == want, fields


def test_laws_are_unknown_if_every_call_shows_a_problem(tmp_path):
    impl = raising(lambda q, k, options: True)
    plan = Plan(examples=3)
    assert not conformance.tried(impl, plan).judged
    assert judge(OUT, impl, plan).verdict == UNKNOWN
    message = Judge(plan, [], tmp_path, "main").contract(impl).message
    assert "Its laws are not judged until it keeps the contract." in message


def test_a_known_failure_of_no_law_does_not_keep_laws_from_being_judged(tmp_path):
    impl = replace(torch_math.IMPL, known_failures={"test_x": "why, #1"})
    plan = Plan(examples=3)
    contract = Judge(plan, [], tmp_path, "main").contract(impl)
    assert contract.verdict == FAIL and contract.message.splitlines()[2].endswith("Its laws are judged.")
    assert judge(OUT, impl, plan).verdict == PASS


def test_the_case_of_a_known_failure_is_a_case():
    impl = replace(torch_math.IMPL, known_failures={OUT.name: KnownFailure("why, #1", "seqlen=5")})
    (problem,) = conformance.problems(impl, "cpu")
    assert problem.startswith("known_failures['out_matches_the_definition']: its case: there is no field 'seqlen'; ")


@pytest.mark.parametrize(("case", "reason"), [("headdim=7", "headdim 7"), ("causal=True", "the law wants not causal")])
def test_the_case_of_a_known_failure_is_judged(case, reason):
    """A case that the law or the device does not take would be passed over without a word."""
    law = "test_order_of_keys_does_not_matter"
    supports = replace(torch_math.IMPL.supports, headdims={8, 64})
    impl = replace(torch_math.IMPL, supports=supports, known_failures={law: {"cpu": KnownFailure("why, #1", case)}})
    (problem,) = conformance.wrong_cases(impl, "cpu")
    assert problem.startswith(
        f"known_failures['order_of_keys_does_not_matter']: its case {case} is not judged: {reason}"
    )
    assert conformance.wrong_cases(impl, "cuda") == []


def test_accepts_may_refuse_the_case_of_a_known_failure():
    supports = replace(torch_math.IMPL.supports, accepts=lambda case: "is known to be wrong")
    impl = replace(torch_math.IMPL, supports=supports, known_failures={OUT.name: KnownFailure("why, #1", "seqlen_q=5")})
    assert conformance.wrong_cases(impl, "cpu") == []


def test_a_kept_contract_costs_one_call_for_each_feature():
    """Other sizes are tried only if the plain case shows a problem."""
    count = [0]

    def counted(q, k, options):
        count[0] += 1

    impl = raising(counted)
    assert conformance.problems(impl, "cpu") == []
    assert count[0] == len(contract_cases.sample(impl))


def test_where_new_keys_went_is_judged_by_a_law():
    """Its message names the row; after a broken contract it would not be judged."""
    mutant = next(mutant for mutant in ALL if mutant.name == "new_keys_go_to_the_slot_of_their_number")
    assert conformance.tried(build(mutant), Plan()).problems == []


def contract_known(where, tmp_path, plan=None):
    """Return an implementation whose broken contract is a known failure, and its result."""
    impl = raising(where, known_failures={"contract_is_kept": "causal, #1"})
    result = Judge(plan or Plan(), [], tmp_path, "main").contract(impl)
    compare_with_known(result, impl, "cpu")
    return impl, result


def test_a_contract_that_is_broken_in_part_may_be_a_known_failure(tmp_path):
    """Laws are judged on the rest, and one that wants the broken part alone does not apply."""
    plan = Plan(examples=3)
    impl, result = contract_known(PARTS["causal"], tmp_path, plan)
    assert (result.verdict, result.known) == (FAIL, "causal, #1")
    of_causal = judge(laws()["test_query_sees_exactly_its_prefix"], impl, plan)
    assert of_causal.verdict == REFUSED and of_causal.reason == "the contract is broken with causal: causal, #1"
    assert judge(OUT, impl, plan).verdict == PASS
    assert next(bound.__name__ for bound in laws_of(impl)) == "contract_is_kept"


def test_a_contract_that_every_call_breaks_is_no_known_failure(tmp_path):
    """The laws that are then not judged would look like known failures."""
    _, result = contract_known(lambda q, k, options: True, tmp_path)
    assert (result.verdict, result.known) == (FAIL, "")


def test_a_contract_that_is_kept_is_no_known_failure(tmp_path):
    _, result = contract_known(lambda q, k, options: False, tmp_path)
    assert result.verdict == FAIL and "passes, but known_failures lists it" in result.reason
