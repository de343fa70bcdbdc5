"""A right kernel that rounds as it does not declare is told what to declare."""

import pytest
import torch

from flash_attest.impls import Precision
from flash_attest.properties.instead.emulated import cut_tf32, nearest_tf32
from tests.properties.instead.stand_ins import edited, said
from tests.properties.rounding_kernels import USUAL
from tests.properties.test_precision import DECLARED, MADE, of
from tests.thorough import covering

TF32 = 'or multiply in float32 (input_precision="ieee", or allow_tf32 = False)'
SUMS = 'sums kept in the dtype of q: declare Precision(accumulate="operand"), or keep them in float32'
TILES = "P v summed in the dtype of q over a tile: declare Precision(tile_sum=64), or sum it in float32"
STATISTICS = 'm and l kept in the dtype of q: declare Precision(statistics="operand"), or keep them in float32'
ALL = "out, lse, dq, dk and dv"
# kernel of test_precision.py, the case in which it fails -> what is said
SAID = {
    ("cut to tf32", "headdim=1"): [
        f'{ALL} are as exact as with float32 cut to tf32: declare Precision(multiply="tf32_cut"), {TF32}'
    ],
    ("three products in tf32", "headdim=1 batch=10 regime=peaked"): [
        f'lse, dk and dv are as exact as with three products in tf32: declare Precision(multiply="tf32x3"), {TF32}'
    ],
    ("scaled q", "headdim=1 dtype=bfloat16 softmax_scale=0.1"): [
        'lse is as exact as with q scaled and rounded before the product: declare Precision(scaled="q"), '
        "or scale the scores"
    ],
    ("scaled q and k", "headdim=1 dtype=bfloat16 softmax_scale=0.5"): [
        "lse is as exact as with q and k scaled and rounded before the product: "
        'declare Precision(scaled="both"), or scale the scores'
    ],
    ("k scaled in the backward", "headdim=1 dtype=bfloat16 softmax_scale=0.1 regime=selecting"): [
        'dv is as exact as with k scaled and rounded in the backward: declare Precision(scaled_in_backward="k"), '
        "or scale dS"
    ],
    ("narrow sums in the backward", "seqlen_q=1000 seqlen_k=3 headdim=16 dtype=bfloat16 regime=mean"): [
        "dv is as exact as with gradients summed in the dtype of q: "
        'declare Precision(accumulate_in_backward="operand"), or keep them in float32',
        f"or with {SUMS}",
    ],
    ("narrow scores", "headdim=1 dtype=float16"): [
        'lse is as exact as with scores rounded to the dtype of q: declare Precision(scores="operand"), '
        "or keep them in float32"
    ],
    ("int8 by tensor", "seqlen_q=1 seqlen_k=2 headdim=1"): [
        "out and lse are as exact as with q and k in int8, with a step for each tensor: "
        'declare Precision(quantize="int8", quantize_by="tensor")'
    ],
    ("fp8 by block", "seqlen_q=1 seqlen_k=2 headdim=1"): [
        "out and lse are as exact as with q and k in fp8, with a step for each block: "
        'declare Precision(quantize="fp8", quantize_by="block")'
    ],
    ("l of the cast P", "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 seed=1"): [
        'lse is as exact as with a row sum l of the cast P: declare Precision(row_sum="operand"), or sum P before '
        "its cast"
    ],
    ("narrow tiles", "seqlen_q=1 seqlen_k=12 headdim=1 dtype=float16 nheads=21 nheads_k=3 regime=flat"): [
        f"out is as exact as with {SUMS}", f"or with {TILES}"
    ],
    ("m rounded late", "seqlen_q=1 seqlen_k=51 headdim=1 dtype=float16 nheads=3 regime=shifted_down seed=2"): [
        f"{ALL} are as exact as with {STATISTICS}"
    ],
    ("merged by lse", "seqlen_q=1 seqlen_k=2 headdim=1 regime=shifted_down"): [
        f'out, dq and dk are as exact as with three products in tf32: declare Precision(multiply="tf32x3"), {TF32}',
        'or with parts merged by float32 lse: declare Precision(merge="lse")',
    ],
    ("rounded parts", "seqlen_q=5 seqlen_k=1000 headdim=48 dtype=bfloat16 regime=mean"): [
        "out is as exact as with parts of out rounded to the dtype of q: "
        'declare Precision(merge="lse", parts="operand"), or keep them in float32'
    ],
    ("polynomial exp", "seqlen_q=1 seqlen_k=2 headdim=1"): [
        f"{ALL} are as exact as with a relative error of exp of about 0.0001: "
        "declare its largest one, Precision(exp=...), or use a more exact exp"
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "case"), SAID)
def test_a_rounding_that_is_not_declared_is_named(name, case):
    declared = DECLARED[name]
    undeclared = Precision(probabilities=declared.probabilities)
    assert said(of(declared, undeclared, MADE.get(name, USUAL)), case) == SAID[name, case]


@pytest.mark.parametrize("name", ["cut to tf32", "scaled q", "m rounded late"])
def test_a_rounding_that_is_declared_is_not_named(name):
    assert said(of(DECLARED[name], made=MADE.get(name, USUAL)), "seqlen_q=5 headdim=3 dtype=bfloat16") == []


# A kernel that asks for tf32, as tl.dot does by default: every factor of a product is rounded.
ROUNDED = (
    ("s = scale * (qi @ kj.mT)", "s = scale * (tf32(qi) @ tf32(kj).mT)"),
    ("acc = alpha * acc + as_operand(p, q) @ vj", "acc = alpha * acc + tf32(as_operand(p, q)) @ tf32(vj)"),
    ("dvj += as_operand(p, q).mT @ doi", "dvj += tf32(as_operand(p, q)).mT @ tf32(doi)"),
    ("dp = doi @ vj.mT", "dp = tf32(doi) @ tf32(vj).mT"),
    ("as_operand(dr, q) @ kj)", "tf32(as_operand(dr, q)) @ tf32(kj))"),
    ("dkj += as_operand(dr, q).mT @ qi", "dkj += tf32(as_operand(dr, q)).mT @ tf32(qi)"),
    ('INF = float("inf")\n', 'INF = float("inf")\nfrom flash_attest.properties.instead.emulated import {0} as tf32\n'),
)


@pytest.mark.parametrize(
    ("function", "words"),
    [("nearest_tf32", 'tf32: declare Precision(multiply="tf32")'),
     ("cut_tf32", 'float32 cut to tf32: declare Precision(multiply="tf32_cut")')],
)  # fmt: skip
def test_tf32_is_named_for_a_kernel_that_uses_it_everywhere(function, words):
    impl = edited(*((old, new.replace("{0}", function)) for old, new in ROUNDED))
    assert said(impl, "headdim=1") == [f"{ALL} are as exact as with {words}, {TF32}"]


def test_tf32_has_ten_bits():
    x = torch.tensor([1.0, 1 + 2.0**-10, 1 + 2.0**-11, 1 + 2.0**-12, -1 - 3 * 2.0**-12])
    step = 2.0**-10
    assert nearest_tf32(x).tolist() == [1.0, 1 + step, 1 + step, 1.0, -1 - step]
    assert cut_tf32(x).tolist() == [1.0, 1 + step, 1.0, 1.0, -1.0]


# --- small errors that no rounding makes ----------------------------------------------------------

NO_ROUNDING = {
    "an epsilon in the denominator": (("acc / l)", "acc / (l + 1e-6))"),),
    "a short constant": (("p = torch.exp(s - m_safe)", "p = torch.exp2((s - m_safe) * 1.44)"),),
    "a scale of 1.0001": (("s = scale * (qi @ kj.mT)", "s = 1.0001 * scale * (qi @ kj.mT)"),),
    "delta of 0.999": (("ds = p * (dp - delta_i)", "ds = p * (dp - 0.999 * delta_i)"),),
    "out truncated to bfloat16": (
        (
            "store_tile(out.transpose(1, 2), i0, oi)",
            "oi = (oi.view(torch.int32) & -65536).view(torch.float32)\n        store_tile(out.transpose(1, 2), i0, oi)",
        ),
    ),
}


@pytest.mark.parametrize(
    "name, dtype",
    covering(1, {name: name for name in NO_ROUNDING}, {dtype: dtype for dtype in ("float32", "bfloat16")}),
)
def test_a_small_error_that_is_no_rounding_is_not_named(name, dtype):
    assert said(edited(*NO_ROUNDING[name]), f"seqlen_q=1 seqlen_k=2 headdim=1 dtype={dtype}") == []
