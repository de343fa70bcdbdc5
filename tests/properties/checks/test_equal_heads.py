"""The law that equal heads of one launch give equal results: test_copies_agree."""

from dataclasses import replace
from itertools import count

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.impls.contract.record import OUTPUTS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks import copies
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from flash_attest.races.copies import compare_copies
from tests.trials import implementation

COPIES_AGREE = laws()["test_copies_agree"]
PLAN = Plan(examples=20, repeats=40, goes_on=False, try_contract=False)


def forward(q, k, v):
    """Compute each head in a separate product, so that its bits do not depend on a larger one."""
    parts = [
        [torch_math.forward(*(t[b : b + 1, :, h : h + 1].contiguous() for t in (q, k, v))) for h in range(q.shape[2])]
        for b in range(q.shape[0])
    ]
    return tuple(torch.cat([torch.cat([p[n] for p in row], axis) for row in parts]) for n, axis in ((0, 2), (1, 1)))


def of(forward, exact=True, **declared):
    """Return an implementation that declares equal heads and is traced, or declares neither."""
    declared = {"lse": "natural", "equal_heads": OUTPUTS if exact else None} | declared
    return implementation(forward, "copied", traced=exact, **declared)


def test_heads_that_agree_say_how_much_that_means():
    result = judge(COPIES_AGREE, of(forward, tile=(16, 16)), replace(PLAN, examples=60))
    assert result.verdict == PASS
    assert "32 comparisons of equal heads in 12 calls of 3 cases under order, other_case, poison: p < " in result.reason


def test_the_bound_is_that_of_the_case_with_the_fewest_comparisons():
    """Each case gets its own number of heads."""
    seen = []

    def counted(q, k, v):
        seen.append(q.shape[0] * q.shape[2] - 1)
        return forward(q, k, v)

    reason = judge(
        COPIES_AGREE, of(counted), replace(PLAN, examples=200, perturbations="none", try_contract=False)
    ).reason
    calls = len(seen)
    assert f"none found in {sum(seen)} comparisons of equal heads in {calls} calls of 10 cases under no" in reason
    assert f"p < {3 / (4 * min(seen)):.2g} for each" in reason and min(seen) < max(seen)


def one_bit(q, k, v):
    """Change one bit in one element of the last head."""
    out, lse = forward(q, k, v)
    out[-1, 20, -1, 3] = torch.nextafter(out[-1, 20, -1, 3], torch.tensor(9.0))
    return out, lse


def test_one_head_with_another_bit_is_found():
    result = judge(COPIES_AGREE, of(one_bit, tile=(16, 16)), PLAN)
    assert result.verdict == FAIL
    assert result.reason.startswith("out: 1 of 1 equal head differs from the first one, in 4 of 4 calls, in 1 of ")
    assert "seqlen_q=24 seqlen_k=24" in result.smallest and (
        "batch=2" in result.smallest or "nheads=2" in result.smallest
    )
    assert "the same heads differ in each call: the result depends on where a head is computed" in result.message


def test_within_the_budget_other_bits_are_right_where_they_are_not_declared():
    assert judge(COPIES_AGREE, of(one_bit, repeatable={"lse"}, equal_heads={"lse"}), PLAN).verdict == PASS
    result = judge(COPIES_AGREE, of(one_bit, exact=False), PLAN)
    assert result.verdict == PASS and result.reason.startswith("equal heads are within the budget of each other in ")


def test_without_a_promise_the_same_heads_may_differ_in_each_call():
    """A library may sum rows in another order if their addresses have another alignment."""
    assert judge(COPIES_AGREE, of(one_bit, equal_heads=None), PLAN).verdict == PASS
    calls = count()

    def now_and_then(q, k, v):
        return one_bit(q, k, v) if next(calls) % 2 else forward(q, k, v)

    result = judge(COPIES_AGREE, of(now_and_then, equal_heads=None), PLAN)
    assert result.verdict == FAIL and result.reason.startswith("out: 1 of 1 equal head differs from the first one, in ")
    assert "a race" in result.message and "`equal_heads`" not in result.message
    assert judge(COPIES_AGREE, of(now_and_then, equal_heads=None, repeatable={"lse"}), PLAN).verdict == PASS


def test_repeatable_outputs_need_not_be_equal_in_each_head():
    """If keys are split by the position of a block, the bits of repeats are equal and the bits of
    heads are not.
    """
    split = of(one_bit, tile=(16, 16), equal_heads={"lse"})
    for law in (COPIES_AGREE, laws()["test_repeats_agree"]):
        assert judge(law, split, PLAN).verdict == PASS
    result = judge(COPIES_AGREE, of(one_bit, equal_heads={"out"}, repeatable={"lse"}), PLAN)
    assert result.verdict == FAIL and "leave the output out of `equal_heads`" in result.message


def test_beyond_the_budget_no_declaration_helps():
    def another_head(q, k, v):
        out, lse = forward(q, k, v)
        out[-1, :, -1] += 1
        return out, lse

    result = judge(COPIES_AGREE, of(another_head, exact=False), PLAN)
    assert result.verdict == FAIL and "another call or head with equal inputs gives" in result.reason


def test_the_first_head_is_named_where_all_others_differ_from_it():
    def first_is_wrong(q, k, v):
        out, lse = forward(q, k, v)
        out[0, 0, 0, 0] += 1
        return out, lse

    how = replace(
        PLAN, case=Case(batch=2, seqlen_q=24, seqlen_k=24, nheads=2, nheads_k=2, headdim=8, dtype=torch.float32)
    )
    result = judge(COPIES_AGREE, of(first_is_wrong), how)
    assert "out: 3 of 3 equal heads differ from the first one" in result.reason
    assert "all others differ from the first one: it is probably the wrong one" in result.message


@pytest.mark.parametrize("bias_batch", [1, 2])
def test_inputs_are_equal_in_every_head(bias_batch):
    case = Case(
        batch=2, seqlen_q=5, seqlen_k=7, nheads=4, nheads_k=2, headdim=8, dtype=torch.float32,
        bias="matrix", bias_batch=bias_batch, bias_nheads=4,
    )  # fmt: skip
    supports = dict(dtypes={torch.float32}, headdims={8}, gqa=True, cross=True, bias={"matrix"})
    trial = Trial(implementation(supports=supports, lse="natural"), case, "cpu")
    for many, batch in ((False, 2), (True, 2 if bias_batch == 1 else copies.HEADS // 4)):
        x = copies.inputs_of(trial, many)
        assert x.q.shape == (batch, 5, 4, 8) and x.k.shape == (batch, 7, 2, 8)
        assert x.bias.shape == (1 if bias_batch == 1 else batch, 4, 5, 7)
        for name, tensor in x.items():
            axes = copies.axes_of(name, tensor)
            assert not compare_copies(tensor, axes).by_slice.any() and tensor.is_contiguous()
            assert torch.equal(tensor.flatten()[:1], getattr(trial.x, name).flatten()[:1])


def test_a_bias_of_one_batch_is_that_of_all():
    """The number of batches stays 1, because the oracle would hold the gradients of all batches at
    once.
    """
    case = Case(batch=1, seqlen_q=5, seqlen_k=5, nheads=2, nheads_k=2, headdim=8, dtype=torch.float32, bias="matrix")
    supports = dict(dtypes={torch.float32}, headdims={8}, bias={"matrix"})
    trial = Trial(implementation(supports=supports, lse="natural"), case, "cpu")
    assert copies.inputs_of(trial, many=True).q.shape[0] == copies.inputs_of(trial, many=True).bias.shape[0] == 1


def test_many_heads_are_only_asked_of_what_takes_them():
    case = Case(batch=2, seqlen_q=5, seqlen_k=5, nheads=2, nheads_k=2, headdim=8, dtype=torch.float32)
    declared = dict(dtypes={torch.float32}, headdims={8}, accepts=lambda case: "one batch" if case.batch > 2 else None)
    trial = Trial(implementation(supports=declared, lse="natural"), case, "cpu")
    assert copies.inputs_of(trial, many=True).q.shape[0] == 2


def test_bits_are_promised_on_a_gpu_and_by_traced_kernels():
    case = Case(batch=2, seqlen_q=5, seqlen_k=5, nheads=1, nheads_k=1, headdim=8, dtype=torch.float32)
    every = set(OUTPUTS)
    for promise, traced, device, exact in (
        (OUTPUTS, False, "cpu", (set(), set())),
        (OUTPUTS, True, "cpu", (every, set())),
        (OUTPUTS, False, "cuda", (every, set())),
        (None, False, "cuda", (set(), every)),
        (["out"], True, "cuda", ({"out"}, set())),
    ):
        assert copies.exact_outputs(Trial(of(forward, traced, equal_heads=promise), case, device)) == exact


def test_slices_are_compared_bit_for_bit():
    tensor = torch.zeros(2, 5, 3, 4)
    tensor[1, 2, 0, 1], tensor[0, 4, 2, 3] = -0.0, torch.nan
    copies = compare_copies(tensor, (0, 2))
    assert copies.by_slice.tolist() == [[False, False, True], [True, False, False]] and int(copies.marked.sum()) == 2
    assert copies.largest == torch.inf and copies.n == 5


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
def test_an_infinite_difference_is_not_called_a_large_number(value):
    tensor = torch.zeros(2, 3)
    tensor[1, 2] = value
    assert compare_copies(tensor, (0,)).largest == torch.inf
