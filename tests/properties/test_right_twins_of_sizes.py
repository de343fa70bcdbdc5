"""Right kernels that look like a planted bug: each passes the law that names the bug."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from flash_attest.impls import Implementation, Precision, Supports, python_tiled, torch_math
from flash_attest.mutants import ALL
from flash_attest.mutants.mutant import build
from flash_attest.properties import test_memory
from flash_attest.properties.cases.case import Case, parse_case
from flash_attest.properties.failures import LawBroken, Reason
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial


def judged(law: str, impl: Implementation, examples: int = 12, **plan):
    return judge(laws()[law], impl, Plan(examples=examples, try_contract=False, **plan))


def mutant(name: str, **declared) -> Implementation:
    (planted,) = (each for each in ALL if each.name == name)
    return replace(build(planted), **declared)


def in_parts(q, k, v, *, size=256):
    """Compute attention over parts of the keys one after another, merged by a float32 lse.

    The last part is shorter. Queries are right whatever their number is.
    """
    out = lse = None
    for first in range(0, max(k.shape[1], 1), size):
        part, of_part = torch_math.forward(q, k[:, first : first + size], v[:, first : first + size])
        if out is None:
            out, lse = part.float(), of_part
            continue
        merged = torch.logaddexp(lse, of_part)
        weights = [(x - merged).exp().transpose(1, 2)[..., None] for x in (lse, of_part)]
        out, lse = weights[0] * out + weights[1] * part.float(), merged
    return out.to(q.dtype), lse


IN_PARTS = Implementation(
    name="in_parts",
    forward=in_parts,
    lse="natural",
    supports=Supports(dtypes={torch.float32}, headdims=range(1, 65), cross=True),
    precision=Precision(merge="lse", probabilities="float32"),
)


@pytest.mark.parametrize(
    "law",
    ["test_single_query_matches_the_definition", "test_keys_beyond_65535", "test_queries_beyond_65535",
     "test_batches_beyond_65535", "test_heads_beyond_65535"],
)  # fmt: skip
def test_keys_may_be_split_and_merged_by_lse(law):
    result = judged(law, IN_PARTS)
    assert result.verdict == PASS and max(result.worst_z.values(), default=0.0) < 6.5, result.message or result.reason


def test_sizes_beyond_16_bits_are_judged_once():
    """The case is the simplest, in every profile."""
    result = judged("test_heads_beyond_65535", IN_PARTS, examples=400)
    assert (result.verdict, result.cases) == (PASS, 1)


@pytest.mark.parametrize("law", [
    pytest.param("test_batches_beyond_65535", marks=pytest.mark.thorough), "test_heads_beyond_65535",
])  # fmt: skip
def test_a_grid_may_end_at_65535(law):
    """The error is allowed. If every call is refused, so is the law."""

    def forward(q, k, v):
        if q.shape[0] * q.shape[2] > 65535:
            raise RuntimeError("CUDA error: invalid configuration argument")
        return in_parts(q, k, v)

    result = judged(law, replace(IN_PARTS, forward=forward))
    assert result.verdict == REFUSED and "invalid configuration" in result.reason, result.message


def test_keys_that_are_refused_must_be_declared():
    """Unlike a number of heads, a number of keys is what users choose."""

    def forward(q, k, v):
        if k.shape[1] > 65535:
            raise ValueError("at most 65535 keys")
        return in_parts(q, k, v)

    refusing = replace(IN_PARTS, forward=forward)
    result = judged("test_keys_beyond_65535", refusing, goes_on=False)
    assert result.verdict == FAIL and "at most 65535 keys" in result.reason

    def accepts(case: Case) -> str | None:
        return "at most 65535 keys" if case.seqlen_k > 65535 else None

    declared = replace(refusing, supports=replace(refusing.supports, accepts=accepts))
    assert judged("test_keys_beyond_65535", declared).why is Reason.NO_CASE


def test_sizes_beyond_16_bits_need_a_gpu_where_kernels_are_emulated():
    result = judged("test_keys_beyond_65535", replace(IN_PARTS, traced=True))
    assert (result.verdict, result.why) == (UNKNOWN, Reason.LAW_OF_OTHER_DEVICE)


@pytest.mark.parametrize("name", ["dq_goes_from_tile_to_tile_in_half", "dv_goes_from_tile_to_tile_in_half"])
def test_sums_in_half_pass_if_declared(name):
    declared = mutant(name, precision=Precision(accumulate="operand"))
    result = judged("test_gradients_of_long_sums_match_the_definition", declared, examples=8)
    assert result.verdict == PASS and max(result.worst_z.values()) < 6.5, result.message


def test_the_default_scale_may_be_computed_in_float32():
    """It then differs from the given one, which is rounded from float64, by an ulp of float32."""

    def forward(q, k, v, softmax_scale=None, **options):
        scale = float(np.float32(1) / np.sqrt(np.float32(q.shape[-1]))) if softmax_scale is None else softmax_scale
        return torch_math.forward(q, k, v, softmax_scale=scale, **options)

    result = judged(
        "test_default_scale_may_be_given", replace(torch_math.IMPL, forward=forward), examples=24, small=True
    )
    assert result.verdict == PASS and max(result.worst_z.values()) < 6.5, result.message


def test_answers_may_be_kept_by_content():
    answers = {}

    def forward(q, k, v):
        key = tuple((x.shape, x.dtype, x.numpy().tobytes()) for x in (q, k, v))
        if key not in answers:
            answers[key] = in_parts(q, k, v)
        return tuple(x.clone() for x in answers[key])

    result = judged("test_answers_follow_the_values", replace(IN_PARTS, forward=forward), examples=20, small=True)
    assert result.verdict == PASS, result.message


def test_an_answer_that_is_always_0_is_not_called_kept():
    def forward(q, k, v):
        return torch.zeros_like(q), in_parts(q, k, v)[1]

    result = judged("test_answers_follow_the_values", replace(IN_PARTS, forward=forward))
    assert result.verdict == FAIL
    assert "as before" not in result.message and "part of one, is cached" not in result.message, result.message


def test_inputs_may_be_changed_and_restored_after_an_error():
    def forward(q, k, v, **options):
        kept = q.clone()
        q.mul_(2.0)
        try:
            return python_tiled.forward(kept, k, v, **options)
        finally:
            q.copy_(kept)

    restoring = replace(python_tiled.IMPL, forward=forward)
    result = judged("test_calls_outside_the_promise_raise_or_are_right", restoring, examples=20, small=True)
    assert result.verdict == PASS, result.message


def test_a_tile_of_64_may_be_skipped_by_its_last_query():
    """Messages name the case: 33 more keys than queries are half a tile of 64 and one."""
    case = parse_case("seqlen_q=66 seqlen_k=99 headdim=1 dtype=float32 causal=True")
    assert judged("test_query_sees_exactly_its_prefix", python_tiled.IMPL, case=case).verdict == PASS
    assert judged("test_out_averages_exactly_its_prefix", python_tiled.IMPL, examples=4).verdict == PASS
    wrong = judged(
        "test_query_sees_exactly_its_prefix",
        mutant("tile_of_64_is_skipped_by_its_first_query"),
        case=case,
        goes_on=False,
    )
    assert wrong.verdict == FAIL, wrong.reason


def test_padding_is_counted_without_lse():
    alone = replace(IN_PARTS, forward=lambda q, k, v: in_parts(q, k, v)[0], lse=None)
    for law in ("test_padding_keys_count_nothing", "test_long_sequences_see_their_keys"):
        assert judged(law, alone, examples=12).verdict == PASS


def test_a_failure_beyond_2_31_elements_names_the_sizes(monkeypatch):
    """The case is the one before it was enlarged."""

    def forward(q, k, v):
        raise ValueError("too large")

    large = Case(batch=3, seqlen_q=5, seqlen_k=5, nheads=8, nheads_k=8, headdim=16)
    monkeypatch.setattr(test_memory, "enlarged", lambda impl, case: large)
    monkeypatch.setattr(test_memory, "first_that_fits", lambda what, attempts: (0, attempts[0]()))
    written = []
    trial = Trial(replace(IN_PARTS, forward=forward), Case(), "cpu", write_down=written.append)
    with pytest.raises(LawBroken) as caught:
        laws()["test_tensors_beyond_2_31_elements"].function(trial)
    sizes = "batch=3 seqlen=5 nheads=8 headdim=16 torch.float32"
    assert caught.value.headline == f"forward raises ValueError: too large; called with {sizes}"
    assert written == [sizes]
