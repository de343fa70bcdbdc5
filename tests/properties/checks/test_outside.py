"""Calls outside of the contract: which calls are tried, and what counts as an answer."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from flash_attest.impls import Implementation, Supports, torch_math
from flash_attest.properties.cases.case import Case, parse_case
from flash_attest.properties.cases.outside import probes
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.trials import broken

LAW = laws()["test_calls_outside_the_promise_raise_or_are_right"]
PLAIN = Case(batch=2, seqlen_q=8, seqlen_k=8, nheads=3, nheads_k=3, headdim=8)
FLOAT, HALF = {torch.float32}, {torch.float16, torch.bfloat16}


def unchecked(q, k, v, *, causal=False, bias=None, softmax_scale=None):
    """Call torch_math without its checks."""
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    k, v = (torch_math.per_query_head(x, q.shape[2]) for x in (k, v))
    s = scale * torch.einsum("bihd,bjhd->bhij", q.float(), k.float())
    if bias is not None and bias.dtype == torch.bool:
        s = s.masked_fill(~bias, -torch.inf)
    elif bias is not None:
        s = s + bias.float()
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[3] - s.shape[2]), -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v.float()).to(q.dtype)


def declaring(forward, outside="error", **supports) -> Implementation:
    """Return an implementation that declares these features, by default float32 and head dims 8 and
    16.
    """
    supports = Supports(**(dict(dtypes=FLOAT, headdims={8, 16}) | supports))
    return Implementation(name="tested", forward=forward, supports=supports, devices={"cpu"}, outside=outside)


def verdict(*args, **declared):
    return judge(LAW, declaring(*args, **declared), Plan(examples=20, try_contract=False))


def first_columns(q, k, v):
    """Leave columns from 16 on out of the scores, which is right for head dims up to 16."""
    return unchecked(torch.cat((q[..., :16], 0 * q[..., 16:]), -1), k, v)


def one_length(q, k, v):
    """Read as many keys as there are queries, which is right for seqlen_q = seqlen_k."""
    return unchecked(q, k[:, : q.shape[1]], v[:, : q.shape[1]])


def key_head_0(q, k, v):
    """Read key heads by a wrong number, which is right for nheads_k = nheads."""
    own = torch.arange(q.shape[2]).clamp(max=k.shape[2] - 1)
    return unchecked(q, k[:, :, own], v[:, :, own])


def as_if_contiguous(q, k, v):
    """Read tensors as if their strides were those of contiguous tensors."""
    return unchecked(*(x.as_strided(x.shape, torch.empty(x.shape).stride()) for x in (q, k, v)))


def bits_of_float32(q, k, v):
    """Read the memory of q as float32, whatever it holds."""
    wrong = q.contiguous().view(torch.float32)[..., : q.shape[-1]] if q.dtype != torch.float32 else q
    return unchecked(wrong.reshape(*q.shape[:-1], -1)[..., : q.shape[-1]].expand(q.shape), k.float(), v.float()).to(
        q.dtype
    )


def no_tail(q, k, v):
    """Leave out the last keys, which is right for multiples of 8."""
    n = k.shape[1] // 8 * 8
    return unchecked(q, k[:, :n], v[:, :n]) if n else torch.zeros_like(q)


def bias_of_enough_keys(q, k, v, bias=None):
    """Read the first seqlen_k entries of a row of the bias."""
    return unchecked(q, k, v, bias=None if bias is None else bias[..., : k.shape[1]])


def half_alone(q, k, v):
    """Compute only as exactly as bfloat16 allows, in every dtype."""
    return unchecked(q.bfloat16(), k.bfloat16(), v.bfloat16()).to(q.dtype)


def in_float32(q, k, v):
    """Return float32 in every dtype."""
    return unchecked(q, k, v).float()


def multiples_of_8(case):
    return "seqlen should divide by 8" if case.seqlen_k % 8 or case.seqlen_q % 8 else None


@pytest.mark.parametrize(("forward", "supports", "named"), [
    (first_columns, {}, "called with headdim 17, it raises no error, and out["),
    (one_length, {}, "called with seqlen_q=8 and seqlen_k=16, it raises no error, and out["),
    (key_head_0, {}, "called with nheads_k < nheads, it raises no error, and out["),
    (as_if_contiguous, {}, "called with layout transposed, it raises no error, and out["),
    (bits_of_float32, {}, "called with dtype float64, it raises no error, and out["),
    (no_tail, dict(accepts=multiples_of_8), "(seqlen should divide by 8), it raises no error, and out["),
    (bias_of_enough_keys, dict(bias={"vector"}), "with a bias of 9 where seqlen_k is 8, it raises no error, and there is"),
], ids=lambda value: getattr(value, "__name__", ""))  # fmt: skip
def test_a_wrong_answer_without_an_error_fails(forward, supports, named):
    case = PLAIN.but(bias="vector") if "bias" in supports else PLAIN
    failure = broken(LAW.hold, Trial(declaring(forward, **supports), case, "cpu"))
    assert named in failure.headline
    assert failure.observed[0].startswith("the call: q (2, ")
    assert failure.observed[-1] == 'raise an error for such a call, support it, or declare outside="undefined"'


@pytest.mark.parametrize(("forward", "supports"), [
    (unchecked, {}),
    (partial(unchecked, causal=True), dict(bias={"vector"}, causal="always")),
    (unchecked, dict(dtypes=HALF, causal="optional", bias={"matrix"}, cross=True, gqa=True, strides=True)),
    (half_alone, dict(dtypes={torch.bfloat16})),
    (in_float32, {}),
    (unchecked, dict(accepts=multiples_of_8)),
], ids=["plain", "causal", "most", "half", "in_float32", "accepts"])  # fmt: skip
def test_the_right_answer_passes(forward, supports):
    result = verdict(forward, **supports)
    assert result.verdict == PASS, result.message


class BiasGradient(torch.autograd.Function):
    """Passes a bias on, and multiplies its gradient by a factor if it has three dimensions."""

    @staticmethod
    def forward(ctx, bias, factor):
        ctx.factor = factor if bias.dim() == 3 else 1
        return bias.clone()

    @staticmethod
    def backward(ctx, dbias):
        return ctx.factor * dbias, None


@pytest.mark.parametrize("factor", [1, 2])
def test_the_gradient_of_a_bias_of_three_dimensions_has_its_shape(factor):
    """autograd returns the gradient in this shape, and it is judged like any other."""

    def forward(q, k, v, bias=None):
        return unchecked(q, k, v, bias=None if bias is None else BiasGradient.apply(bias, factor))

    impl = declaring(forward, dtypes=FLOAT, bias={"vector"})
    impl = replace(impl, backward="autograd", supports=replace(impl.supports, bias_grad=True))
    trial = Trial(impl, PLAIN.but(bias="vector"), "cpu")
    if factor == 1:
        LAW.hold(trial)
    else:
        headline = broken(LAW.hold, trial).headline
        assert headline.startswith("called with a bias of three dimensions, it raises no error, and dbias[")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no")])
def test_any_error_passes(error):
    def checking(q, k, v):
        plain = q.shape == k.shape == v.shape and q.dtype == k.dtype == torch.float32 and q.shape[-1] in (8, 16)
        if not plain or not all(x.is_contiguous() for x in (q, k, v)):
            raise error
        return unchecked(q, k, v)

    result = verdict(checking)
    assert result.verdict == PASS and result.reason.startswith("errors that this law allows: ")


def test_all_that_is_wrong_is_listed():
    def wrong(q, k, v):
        return torch.zeros_like(q) if q.shape[2] > k.shape[2] or q.shape[3] == 17 else unchecked(q, k, v)

    failure = broken(LAW.hold, Trial(declaring(wrong), PLAIN, "cpu"))
    assert failure.headline.startswith("called with headdim 17, ")
    phrase, lines = failure.investigate()
    assert (phrase, [line.partition(":")[0] for line in lines]) == ("", ["also with nheads_k < nheads"])


def test_only_the_call_that_failed_is_tried_while_shrinking():
    """The message still lists the others, which the smallest case tries once."""
    calls = []

    def wrong(q, k, v):
        calls.append("float64" if q.dtype == torch.float64 else "mixed" if k.dtype != q.dtype else "")
        return unchecked(q, k, v) if not calls[-1] else torch.zeros_like(q)

    result = judge(LAW, declaring(wrong), Plan(examples=20, goes_on=False, try_contract=False))
    assert result.verdict == FAIL and result.reason.startswith("called with dtype float64, ")
    assert "also with q in float32 and k, v in float16: it raises no error, and out[" in result.message
    assert (calls.count("float64") > 10, calls.count("mixed")) == (True, 1)


def test_inputs_are_aligned_as_torch_aligns_them():
    """With less alignment, a wide load would be an illegal access on a GPU."""
    offsets = set()

    def looking(q, k, v):
        offsets.update(x.data_ptr() % 64 for x in (q, k, v) if x.is_contiguous())
        return unchecked(q, k, v)

    for seqlen in (3, 7, 8):
        case = PLAIN.but(seqlen_q=seqlen, seqlen_k=seqlen, headdim=3)
        LAW.hold(Trial(declaring(looking, headdims={3}), case, "cpu"))
    assert offsets == {0}


def test_a_wrong_use_of_the_stride_of_one_head_is_named():
    """Tensor.contiguous() leaves this stride as it is, so a wrapper that calls it is wrong, too."""

    def by_heads(q, k, v):
        q, k, v = (x.contiguous() for x in (q, k, v))
        rows = [(x.stride(0), x.shape[2] * x.stride(2), x.stride(2), 1) for x in (q, k, v)]
        return unchecked(*(x.as_strided(x.shape, strides) for x, strides in zip((q, k, v), rows, strict=True)))

    headline = broken(LAW.hold, Trial(declaring(by_heads), PLAIN, "cpu")).headline
    assert headline.startswith("called with layout size_one, it raises no error, and out[")


def test_nothing_is_asked_where_nothing_is_promised_outside():
    result = verdict(first_columns, outside="undefined")
    assert (result.verdict, result.why) == (REFUSED, Reason.NOT_DECLARED)
    assert result.reason == 'outside="undefined": calls outside of `supports` have no defined result'


def test_no_probe_is_inside_the_promise_of_everything():
    """Declared features are not tried. If all are declared, only these calls are outside of the
    contract.
    """
    case = Case(batch=2, seqlen_q=9, seqlen_k=9, nheads=3, nheads_k=3, headdim=8, bias="matrix")
    words = [probe.what for probe in probes(torch_math.IMPL, case)]
    assert words == [
        "headdim 1025",
        "dtype float64",
        "q in float32 and k, v in float16",
        "q, k in float32 and v in float16",
        "q, k, v in float32 and dout in float16",
        "one batch more in k and v than in q",
        "nheads=3 and nheads_k=4",
        "one column more in k and v than in q",
        "a bias of 10 where seqlen_q is 9",
        "a bias of 10 where seqlen_k is 9",
        "a bias of 8 where seqlen_k is 9",
        "a bias of three dimensions",
        "a bias in float64",
        "a bias in float16",
        "a bias in bfloat16",
    ]


def test_a_promise_that_is_broken_is_not_blamed_on_what_is_outside():
    result = verdict(lambda q, k, v: 1 + unchecked(q, k, v))
    assert (result.verdict, result.reason) == (UNKNOWN, "supported calls are wrong, too: other laws say how")


def test_what_is_wrong_outside_is_found_beside_a_broken_promise():
    """The kernel leaves out the last keys unless their number is a multiple of 8, and gives zeros
    in float16, which is not declared.
    """

    def forward(q, k, v):
        n = k.shape[1] - (k.shape[1] % 8 > 0)
        return unchecked(q, k[:, :n], v[:, :n]) if q.dtype != torch.float16 else torch.zeros_like(q)

    result = judge(LAW, declaring(forward), Plan(examples=20, small=True, goes_on=False, try_contract=False))
    assert (result.verdict, parse_case(result.smallest).seqlen_k) == (FAIL, 8)
    assert "called with dtype float16, it raises no error" in result.reason


def test_calls_outside_leave_no_z():
    """If no alignment is declared, two alignments are tried. With one of them a right call would
    have a large z.
    """
    result = verdict(unchecked, cross=False)
    assert result.verdict == PASS and result.worst_z == {}
