"""Each field of `Precision`: a kernel that rounds in this way passes if it declares the field, and
fails otherwise.
"""

from dataclasses import replace

import pytest
import torch

from flash_attest.bench.calibrate import calibrate
from flash_attest.impls import ContractError, Precision
from flash_attest.oracle import score
from flash_attest.properties.cases.case import REGIMES, parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.properties.rounding_kernels import USUAL, Made, kernel
from tests.trials import broken, fails

DECLARED = {
    "merged by lse": Precision(merge="lse"),
    "rounded parts": Precision(merge="lse", parts="operand"),
    "scaled q": Precision(scaled="q"),
    "scaled k": Precision(scaled="k"),
    "scaled q and k": Precision(scaled="both"),
    "narrow tiles": Precision(tile_sum=32),
    "narrow statistics": Precision(statistics="operand"),
    "narrow statistics, wide P": Precision(statistics="operand", probabilities="float32"),
    "m rounded late": Precision(statistics="operand"),
    "narrow sums": Precision(accumulate="operand"),
    "narrow sums in the backward": Precision(accumulate_in_backward="operand"),
    "narrow scores": Precision(scores="operand"),
    "l of the cast P": Precision(row_sum="operand"),
    "narrow throughout": Precision(accumulate="operand", statistics="operand", row_sum="operand"),
    "narrow throughout, split": Precision(accumulate="operand", statistics="operand", row_sum="operand", merge="lse"),
    "k scaled in the backward": Precision(scaled_in_backward="k"),
    "q scaled, k in the backward": Precision(scaled="q", scaled_in_backward="k"),
    "int8 by tensor": Precision(quantize="int8"),
    "int8 by head, narrow tiles": Precision(quantize="int8", quantize_by="head", tile_sum=32),
    "fp8 by block": Precision(quantize="fp8", quantize_by="block"),
    "split and scaled": Precision(merge="lse", scaled="q"),
    "polynomial exp": Precision(exp=1e-4),
    "exp too large": Precision(exp=4e-4, probabilities="float32"),
    "cut to tf32": Precision(multiply="tf32_cut"),
    "cut to tf32, wide P": Precision(multiply="tf32_cut", probabilities="float32"),
    "three products in tf32": Precision(multiply="tf32x3"),
}
# How these make their roundings. The last tile of a kernel may come first, as in FlashAttention-3.
MADE = {
    "m rounded late": Made(late=True, tile=48, last_first=True),
    "narrow throughout": Made(late=True, stepwise=True, tile=16),
    "narrow throughout, split": Made(late=True, stepwise=True, tile=16),
}
# The other fields combine the roundings of these.
ALONE = (
    "merged by lse",
    "rounded parts",
    "scaled q",
    "scaled q and k",
    "narrow tiles",
    "narrow statistics",
    "m rounded late",
    "narrow sums",
    "narrow sums in the backward",
    "l of the cast P",
    "narrow throughout",
    "k scaled in the backward",
    "int8 by tensor",
    "polynomial exp",
)
by_declaration = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALONE else pytest.mark.thorough, id=name) for name in DECLARED]
)


def of(precision, declares=None, made=USUAL):
    """Return a kernel that rounds as `precision` says.

    Quantised kernels are for inference, because gradients of the rounded q would differ.
    """
    impl = kernel(precision, made, backward=precision.quantize == "none")
    return replace(impl, precision=declares or precision)


def named(name, declares=None):
    return of(DECLARED[name], declares, MADE.get(name, USUAL))


@pytest.mark.parametrize("cases", [1, pytest.param(600, marks=pytest.mark.thorough)])
@by_declaration
def test_a_right_kernel_is_within_its_budget_in_every_regime(name, cases):
    """One case is tried in every third regime, so that each regime meets some of the kernels."""
    for regime in REGIMES if cases > 1 else REGIMES[[*DECLARED].index(name) % 3 :: 3]:
        calibration = calibrate(named(name), regime, cases, "cpu", 0)
        assert calibration["beyond"] == []


# The laws that claim equal bits, or continue to compute with rounded results; and, nightly, every
# law.
EXPOSED = (
    "test_hidden_keys_change_no_bit",
    "test_keys_hidden_by_bias_change_no_bit",
    "test_out_scales_with_v",
    "test_powers_of_four_move_between_q_and_scale",
    "test_single_key_is_copied",
    "test_winning_key_is_copied",
    "test_out_averages_exactly_its_prefix",
    "test_padding_keys_count_nothing",
    "test_split_keys_merge_by_lse",
    "test_shifting_all_scores_changes_only_lse",
    "test_v_dv_equals_out_dout",
    "test_q_dq_equals_k_dk",
)
# On a CPU the other laws need a traced kernel or a GPU.
LAWS = [law for law in laws().values() if law.device != "cuda" and "traced" not in law.needs]
# Each exposed law judges every sixth of the kernels, and each kernel meets two of these laws.
FEW = {(name, law) for i, name in enumerate(ALONE) for j, law in enumerate(EXPOSED) if (i + j) % 6 == 0}


@pytest.mark.parametrize(
    "name, law",
    [
        pytest.param(name, law, marks=() if (name, law.name) in FEW else pytest.mark.thorough, id=f"{name}-{law.name}")
        for law in LAWS
        for name in DECLARED
    ],
)
def test_a_right_kernel_keeps_the_laws(name, law):
    examples = 6 if (name, law.name) in FEW else 100
    result = judge(law, named(name), Plan(examples=examples, try_contract=False, small=examples < 10))
    assert result.verdict in (PASS, REFUSED), result.message


# What each kernel does if it declares nothing: one case of a law that fails, and the law.
UNDECLARED = {
    "merged by lse": ("test_out_matches_the_definition", "seqlen_k=100 headdim=1 dtype=float32 regime=shifted_down"),
    "rounded parts": ("test_out_matches_the_definition", "seqlen_k=300 headdim=48 dtype=bfloat16 regime=mean"),
    "scaled q": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=bfloat16"),
    "scaled k": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=bfloat16"),
    "scaled q and k": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=bfloat16"),
    "narrow tiles": ("test_out_matches_the_definition", "seqlen_k=100 headdim=48 dtype=bfloat16 regime=mean"),
    "narrow statistics": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=float16"),
    "narrow statistics, wide P": ("test_single_key_is_copied", "seqlen_k=1 headdim=48 dtype=float16"),
    "m rounded late": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=float16"),
    "narrow sums": ("test_out_matches_the_definition", "seqlen_k=130 headdim=48 dtype=bfloat16 regime=mean"),
    "narrow sums in the backward": (
        "test_gradients_match_the_definition",
        "seqlen_k=1000 headdim=16 dtype=bfloat16 regime=mean",
    ),
    "narrow scores": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=float16"),
    "l of the cast P": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=bfloat16"),
    "narrow throughout": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=float16"),
    "narrow throughout, split": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=float16"),
    "k scaled in the backward": (
        "test_gradients_match_the_definition",
        "seqlen_k=100 headdim=48 dtype=float16 regime=peaked",
    ),
    "q scaled, k in the backward": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=bfloat16"),
    "int8 by tensor": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=float16"),
    "int8 by head, narrow tiles": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=float16"),
    "fp8 by block": ("test_out_matches_the_definition", "seqlen_k=100 headdim=48 dtype=float16"),
    "split and scaled": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=bfloat16"),
    "polynomial exp": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=bfloat16"),
    "exp too large": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=bfloat16"),
    "cut to tf32": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=48 dtype=float32"),
    "three products in tf32": ("test_lse_matches_the_definition", "seqlen_k=100 headdim=1 dtype=float32 regime=large"),
    "cut to tf32, wide P": ("test_single_key_is_copied", "seqlen_k=1 headdim=48 dtype=float32"),
}


@pytest.mark.parametrize("name", DECLARED)
def test_the_same_kernel_fails_where_it_does_not_declare_it(name):
    law, case = UNDECLARED[name]
    law, case = laws()[law].function, parse_case(f"seqlen_q=33 {case}")
    law(Trial(named(name), case, "cpu"))
    undeclared = named(name, replace(Precision(), probabilities=DECLARED[name].probabilities))
    broken(law, Trial(undeclared, case, "cpu"))


def test_an_inexact_exp_is_guessed():
    """If only lse is slightly off, the message says what may be declared."""
    law, case = UNDECLARED["polynomial exp"]
    how = Plan(case=parse_case(f"seqlen_q=33 {case}"), try_contract=False)
    message = judge(laws()[law], of(DECLARED["polynomial exp"], Precision()), how).message
    assert "declare its largest relative error, Precision(exp=...)" in message


def test_an_inexact_exp_is_not_guessed_if_scores_are_rounded():
    """lse of one key is then off by another number in each row, and exp(0) is 1."""
    case = parse_case("seqlen_q=33 seqlen_k=100 headdim=8 dtype=bfloat16")
    undeclared = of(Precision(scaled="q"), Precision())
    result = judge(laws()["test_lse_matches_the_definition"], undeclared, Plan(case=case, try_contract=False))
    assert result.verdict == FAIL and "Precision(exp=...)" not in result.message


def test_more_than_is_declared_fails():
    """The kernel uses fp8, which has fewer digits near the maximum than int8, which it declares."""
    how = Plan(case=parse_case("seqlen_q=33 seqlen_k=100 headdim=2 dtype=float16 regime=peaked"), try_contract=False)
    law = laws()["test_lse_matches_the_definition"]
    assert judge(law, of(Precision(quantize="fp8"), Precision(quantize="int8")), how).verdict == FAIL
    assert judge(law, of(Precision(quantize="int8")), how).verdict == PASS


@pytest.mark.parametrize("law", ["test_padding_keys_count_nothing", "test_single_key_is_copied"])
def test_narrow_statistics_hide_no_key(law):
    """exp(lse) counts one key too many, with score 0 and v = 0, and a copied row is half of v."""
    right = of(Precision(statistics="operand"))

    def forward(q, k, v, *, bias=None, **keywords):
        bias = None if bias is None else torch.nn.functional.pad(bias, (0, 1))
        return right.forward(
            q, *(torch.nn.functional.pad(x, (0, 0, 0, 0, 0, 1)) for x in (k, v)), bias=bias, **keywords
        )

    halves = replace(right.supports, dtypes={torch.float16, torch.bfloat16})
    wrong = replace(right, forward=forward, backward=None, supports=replace(halves, bias_grad=False))
    assert fails(laws()[law], wrong, Plan(examples=20))


@pytest.mark.parametrize(
    ("field", "value", "should"),
    [
        ("merge", "max", "precision.merge='max': should be one of 'accumulator', 'lse'"),
        (
            "scaled_in_backward",
            "v",
            "precision.scaled_in_backward='v': should be one of 'scores', 'q', 'k', 'both', None",
        ),
        ("scores", "half", "precision.scores='half': should be one of 'float32', 'operand'"),
        ("row_sum", "half", "precision.row_sum='half': should be one of 'float32', 'operand'"),
        (
            "parts",
            "operand",
            'precision.parts="operand" needs merge="lse", as other merges have no partial outs: declare both, or '
            'parts="float32"',
        ),
        ("parts", "half", "precision.parts='half': should be one of 'float32', 'operand'"),
        ("scaled", True, "precision.scaled=True: should be one of 'scores', 'q', 'k', 'both'"),
        ("statistics", "half", "precision.statistics='half': should be one of 'float32', 'operand'"),
        ("quantize", "int4", "precision.quantize='int4': should be one of 'none', 'int8', 'fp8'"),
        ("quantize_by", "row", "precision.quantize_by='row': should be one of 'tensor', 'head', 'block'"),
        ("tile_sum", 0, "precision.tile_sum=0: should be a number of keys, at least 1, or None"),
        ("exp", 0.1, "precision.exp=0.1: should be a relative error, from 0 to 0.01"),
        ("exp", "poly", "precision.exp='poly': should be a relative error, from 0 to 0.01"),
        ("tile_sum", True, "precision.tile_sum=True: should be a number of keys, at least 1, or None"),
    ],
)
def test_an_unknown_value_is_named(field, value, should):
    with pytest.raises(ContractError) as caught:
        kernel(Precision(**{field: value}))
    assert should in caught.value.problems


def test_out_that_is_rounded_to_v_in_every_column_is_in_the_budget_of_dq():
    """One key takes all but 2^-9 of the weight, and v has one sign.

    The stored out then lacks the other key's part in every column, so the error of delta does not
    average out. dq would be 6.6 standard deviations off.
    """
    sizes = "seqlen_q=26 seqlen_k=26 headdim=127 dtype=bfloat16 batch=5 nheads=5 nheads_k=1 causal=True"
    trial = Trial(named("l of the cast P"), parse_case(f"{sizes} softmax_scale=-0.25 regime=one_sign seed=285"), "cpu")
    got, expected = trial.run(backward=True), trial.expected(backward=True)
    assert score(got.dq, expected.want.dq, expected.sigma.dq, torch.bfloat16, trial.form).worst_z < 4
