"""Right kernels that look like planted bugs of addresses, strides, maxima, roundings and masks."""

from dataclasses import replace

import pytest

from flash_attest.impls import Precision, python_tiled
from flash_attest.mutants.mutant import build
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.inputs import ADDED, BOOLEAN, DELTA, OUT, SCALED, VECTOR
from flash_attest.mutants.tiled.masks import MAXIMUM
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws
from tests.trials import fails

LAYOUT = "test_any_layout_equals_the_contiguous_one"
HUGE = "test_huge_scores_match_the_definition"
GRADIENTS = "test_gradients_match_the_definition"
COUNTS = "test_infinite_bias_hides_exactly_its_keys"
EMPTY = "test_rows_without_keys_give_zero"

# A load of vectors where address and distances of rows allow it, and of elements elsewhere.
CHECKED = (
    "    x = v\n"
    "    steps = [n * x.element_size() % 16 for size, n in zip(x.shape[:3], x.stride()) if size > 1]\n"
    f"    if headdim % {VECTOR} == 0 and x.data_ptr() % 16 == 0 and not any(steps):\n"
    f"        rows = (n // {VECTOR} * {VECTOR} for n in x.stride()[:3])\n"
    "        v = x.as_strided(x.shape, (*rows, x.stride(3)))\n"
)
# The maximum in use stays while a row's own maximum is no more than 8 above it.
LAZY = (
    (
        MAXIMUM,
        "            top = torch.maximum(m, s.amax(-1, keepdim=True))\n"
        "            m_new = torch.where((top - m <= 8) & (m > -INF), m, top)",
    ),
)
TWINS = {
    "an address is rounded down only if all are multiples of 16 bytes": (LAYOUT, ((OUT, CHECKED + OUT),), {}),
    "a tensor at another address is copied": (
        LAYOUT,
        ((OUT, "    q, k, v = (x.clone() if x.data_ptr() % 16 else x for x in (q, k, v))\n" + OUT),),
        {},
    ),
    "strides of k serve v where they are equal": (
        LAYOUT,
        ((OUT, "    v = v.as_strided(v.shape, k.stride()) if k.stride() == v.stride() else v\n" + OUT),),
        {},
    ),
    "dout is copied where its strides are not those of out": (
        LAYOUT,
        ((DELTA, "    dout = torch.empty_like(out).copy_(dout) if dout.stride() != out.stride() else dout\n" + DELTA),),
        {},
    ),
    "rows of a contiguous tensor lie nheads * headdim apart": (
        LAYOUT,
        (
            (
                OUT,
                "    if k.is_contiguous():\n"
                "        k = k.as_strided(k.shape, (k[0].numel(), k[0, :1].numel(), headdim, 1))\n" + OUT,
            ),
        ),
        {},
    ),
    "a rescale is skipped while the rise is small": (HUGE, LAZY, {}),
    "dq is scaled before it is stored": (GRADIENTS, ((SCALED, "    dq = (scale * dq).to(q.dtype)\n"),), {}),
    "k is scaled before dS k": (
        GRADIENTS,
        (
            ("as_operand(dr, q) @ kj)", "as_operand(dr, q) @ as_operand(scale * kj, q))"),
            (SCALED, "    dq = dq.to(q.dtype)\n"),
        ),
        dict(precision=Precision(scaled_in_backward="k")),
    ),
    "a mask is converted to 0 and -inf, and added": (
        COUNTS,
        ((ADDED, "s + torch.where(bias == 0, -INF, 0.0)"),),
        BOOLEAN,
    ),
    "a mask is inverted twice": (COUNTS, ((ADDED, ADDED.replace("bias == 0", "~(bias != 0)")),), BOOLEAN),
    "a mask hides by the least number, and empty rows are known": (
        EMPTY,
        (
            (ADDED, ADDED.replace("bias == 0, -INF", "bias == 0, -3e38")),
            ("            p = torch.exp(s - m_safe)", "            p = torch.exp(s - m_safe) * (s > -3e38)"),
            ("lse_i = m + torch.log(l)", "lse_i = torch.where(l == 0, -INF, m + torch.log(l))"),
            ("            p = torch.exp(s - lse_i)", "            p = torch.exp(s - lse_i) * (s > -3e38)"),
        ),
        BOOLEAN,
    ),
}


@pytest.mark.parametrize("examples", [8, pytest.param(48, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("words", TWINS)
def test_a_right_twin_passes_the_law_that_catches_its_like(words, examples):
    law, edits, declares = TWINS[words]
    twin = planted(name="twin", law=law, edits=edits, declares=declares, smallest={}, story=words)
    result = judge(laws()[law], build(twin), Plan(examples=examples, try_contract=False, small=examples < 10))
    assert result.verdict == PASS, result.message or result.reason


@pytest.mark.parametrize("strides", ["last_contiguous", "aligned"])
def test_a_kernel_that_loads_vectors_passes_where_it_declares_what_they_need(strides):
    """It raises for any other address, as kernels with TMA do."""

    def vectors(q, k, v, **options):
        for x in (q, k, v):
            steps = [n for size, n in zip(x.shape[:3], x.stride()) if size > 1]  # noqa: B905
            whole = x.shape[3] * x.element_size() % 16 == 0
            if whole and any(n % 16 for n in (x.data_ptr(), *(n * x.element_size() for n in steps))):
                raise ValueError("rows should begin at multiples of 16 bytes")
        return python_tiled.forward(q, k, v, **options)

    supports = replace(python_tiled.IMPL.supports, strides=strides)
    impl = replace(python_tiled.IMPL, name="vectors", forward=vectors, supports=supports)
    if strides == "last_contiguous":
        assert fails(laws()[LAYOUT], impl, Plan(examples=30))
    else:
        result = judge(laws()[LAYOUT], impl, Plan(examples=30, try_contract=False, goes_on=False))
        assert result.verdict == PASS, result.message or result.reason
