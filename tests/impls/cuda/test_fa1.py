"""impls/cuda/fa1.cu on the CPU: correct results, no races, and clear refusals.

FlashAttention-1 keeps out, l and m in global memory and rescales them at every step. The tracer
confirms that each element belongs to one thread, so that no barrier is needed.
"""

import re

import pytest
import torch

from flash_attest.impls.cuda.problem import integers
from flash_attest.races.tracing import tracing
from tests.impls.cuda.hosts import Host, Refusal, is_attention, mask_of, small_device, unwritten
from tests.impls.cuda.values import randn

INF = float("inf")
FLOAT32, FLOAT16, BFLOAT16 = torch.float32, torch.float16, torch.bfloat16


@pytest.fixture(scope="module")
def fa1():
    return Host("fa1")


def tensors(seqlen_q, seqlen_k, headdim, dtype=FLOAT32, batch=1, nheads=2, nheads_k=None):
    """Return q, k, v, dout."""
    of_q, of_k = (batch, seqlen_q, nheads, headdim), (batch, seqlen_k, nheads_k or nheads, headdim)
    return [randn(*shape, dtype=dtype, seed=n) for n, shape in ((1, of_q), (2, of_k), (3, of_k), (0, of_q))]


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("headdim", [1, 3, 32, 33, 64, 72, 128, 200, 256])
def test_head_dims(fa1, headdim, dtype):
    fa1.check(*tensors(70, 90, headdim, dtype, nheads=1), causal="bottom_right")


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("headdim", [257, 512, 513, 1024])
def test_head_dims_forward_only(fa1, headdim, dtype):
    fa1.check(*tensors(20, 40, headdim, dtype, nheads=1)[:3])


@pytest.mark.parametrize("causal", [None, "bottom_right", "top_left"])
@pytest.mark.parametrize(
    "lengths",
    [(0, 0), (0, 5), (5, 0), (1, 1), (1, 130), (130, 1), (15, 16), (16, 16), (17, 16), (63, 65), (64, 64), (129, 65)],
    ids=str,
)
def test_lengths(fa1, lengths, causal):
    fa1.check(*tensors(*lengths, 8), causal=causal)


def test_rows_without_keys(fa1):
    got = fa1.check(*tensors(80, 10, 4), causal="bottom_right")
    for name in ("out", "dq"):
        assert (got[name][:, :70] == 0).all() and (got[name][:, 70:] != 0).any(), name
    for name, value in dict(lse=-INF, m=-INF, l=0).items():
        assert (got[name][..., :70] == value).all() and (got[name][..., 70:] != value).all(), name


def test_keys_that_no_query_sees_have_gradient_zero(fa1):
    got = fa1.check(*tensors(10, 80, 4), causal="top_left")
    assert (got["dk"][:, 10:] == 0).all() and (got["dv"][:, 10:] == 0).all()


@pytest.mark.parametrize("heads", [(4, 2), (3, 1), (4, 4)], ids=str)
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16], ids=str)
def test_grouped_heads(fa1, heads, dtype):
    fa1.check(*tensors(33, 70, 8, dtype, 2, *heads), causal="bottom_right")


@pytest.mark.parametrize("shape", [(2, 3, 70, 90), (1, 3, 70, 90), (2, 1, 70, 90), (1, 1, 70, 90)], ids=str)
@pytest.mark.parametrize("vector", [False, True], ids=["matrix", "vector"])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16, BFLOAT16], ids=str)
def test_bias(fa1, shape, vector, dtype):
    batch, nheads, rows, keys = shape
    bias = randn(batch, nheads, 1 if vector else rows, keys, dtype=dtype, seed=9)
    bias[..., :65] = -INF  # hides the whole first key tile
    if not vector:
        bias[:, :, 3] = -INF  # hides a whole row
    got = fa1.check(*tensors(70, 90, 8, dtype if dtype != BFLOAT16 else FLOAT32, 2, 3), bias=bias)
    assert vector or (got["out"][:, 3] == 0).all()


@pytest.mark.parametrize("value", [torch.finfo(FLOAT32).min, -1e30, -1e4])
def test_finite_masks_are_finite(fa1, value):
    """A row in which all keys have the same finite bias gives the same results as a row without a
    bias.

    Keys with a smaller bias get no weight.
    """
    q, k, v, dout = tensors(20, 70, 8)
    bias = torch.zeros(1, 1, 20, 70)
    bias[:, :, 1:, 30:] = value
    fa1.check(q, k, v, dout, bias=bias)
    bias[:, :, 5] = value
    got = fa1.forward(torch.zeros_like(q), k, v, bias=bias)
    assert torch.allclose(got["out"][:, 5], v.mean(1), atol=1e-6)
    assert (got["l"][:, :, 5] == 70).all() and (got["m"][:, :, 5] == value).all() and got["lse"].isfinite().all()


@pytest.mark.parametrize("softmax_scale", [0.0, -0.3, 25.0])
def test_scales(fa1, softmax_scale):
    """With scale 25, some scores are above 100 and some below -100."""
    *qkv, dout = tensors(40, 70, 16)
    fa1.check(*qkv, dout if softmax_scale < 1 else None, softmax_scale=softmax_scale)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16], ids=str)
@pytest.mark.parametrize("gap", [0, 1, 4])
def test_strides(fa1, dtype, gap):
    """q, k, v are packed in one tensor, and so are their gradients; out and dout are transposed.

    The gaps between elements are not touched.
    """
    batch, seqlen, nheads, headdim = 2, 66, 2, 12
    size = (batch, seqlen, 3, nheads, headdim + gap)
    packed, into = randn(*size, dtype=dtype), unwritten(*size, dtype=dtype)
    packed[..., headdim:] = torch.nan
    q, k, v = packed[..., :headdim].unbind(2)
    dout = randn(batch, nheads, seqlen, headdim, dtype=dtype).transpose(1, 2)
    out = unwritten(batch, nheads, seqlen, headdim, dtype=dtype).transpose(1, 2)
    bias = randn(nheads, 70, seqlen).transpose(1, 2)[:, :, :seqlen].expand(batch, -1, -1, -1)  # keys 70 apart
    got = fa1.forward(q, k, v, bias=bias, out=out)
    got |= fa1.backward(dout, q, k, v, out, got["lse"], bias=bias, into=into[..., :headdim].unbind(2))
    is_attention(got, q, k, v, dout, bias=bias)
    assert into[..., headdim:].isnan().all()


def test_repeats_have_the_same_bits(fa1):
    call = tensors(70, 130, 40, FLOAT16, 2, 4, 2)
    bias = randn(1, 1, 1, 130)
    first, second = (fa1.check(*call, bias=bias, causal="bottom_right") for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


# --- races ----------------------------------------------------------------------------------------

TRACED = [
    dict(lengths=(1, 1, 1)),
    dict(lengths=(20, 17, 8), causal="bottom_right", dtype=FLOAT16, heads=(2, 1)),
    dict(lengths=(9, 40, 33), causal="top_left", bias=(1, 1, 1)),
    dict(lengths=(70, 70, 4), causal="bottom_right", bias=(2, 1, 70), dtype=BFLOAT16),
    dict(lengths=(9, 0, 4)),
]


@pytest.mark.parametrize("case", TRACED, ids=[str(case["lengths"]) for case in TRACED])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2))])
def test_has_no_race(fa1, case, seed):
    (seqlen_q, seqlen_k, headdim), (nheads, nheads_k) = case["lengths"], case.get("heads", (1, 1))
    inputs = tensors(seqlen_q, seqlen_k, headdim, case.get("dtype", FLOAT32), 2, nheads, nheads_k)
    bias = randn(*case["bias"], seqlen_k) if "bias" in case else None
    plain = fa1.check(*inputs, bias=bias, causal=case.get("causal"))
    with tracing(seed=seed, switch=0.05 * (seed % 2)) as trace:
        traced = fa1.check(*inputs, bias=bias, causal=case.get("causal"))
    assert trace.launches == 4 + (bias is not None)
    assert [str(finding) for finding in trace.findings] == []
    assert all(torch.equal(traced[name], plain[name]) for name in plain)


# --- refused --------------------------------------------------------------------------------------

REFUSED = [
    (dict(headdim=1025), "fa1_forward: headdim=1025: should be 1 to 1024", "headdim=1025: should be 1 to 256"),
    (dict(headdim=0), "headdim=0: should be 1 to 1024", "headdim=0: should be 1 to 256"),
    (dict(nheads=3, nheads_k=2), *["nheads=3 is not a multiple of nheads_k=2"] * 2),
    (dict(nheads_k=0), *["nheads=2 is not a multiple of nheads_k=0"] * 2),
    (dict(seqlen_k=-1), *["seqlen_k=-1: should be 0 to 1073741824"] * 2),
    (dict(batch=2**31), *["batch=2147483648: should be 0 to 1073741824"] * 2),
    (dict(dtype=3), *["dtype=3: should be 0, 1 or 2"] * 2),
    (dict(splits=0), "splits=0: should be 1 to 64", "splits=0: should be 1, as one block has a head"),
    (dict(last_diagonal=2**31), *["last_diagonal=2147483648: should be -1073741824 to 1073741824"] * 2),
    (dict(batch=2**30, nheads=2**30, nheads_k=2**30, seqlen_q=2**10),
     *["9.44473e+21 elements are more than an address can reach"] * 2),
    (dict(batch=2**20, nheads=2**12, nheads_k=2**12), "fa1_forward: 4294967296 blocks are more than the 2147483647 of a grid",
     "fa1_backward: 2147483648 blocks are more than the 2147483647 of a grid"),
]  # fmt: skip


@pytest.mark.parametrize("changed, by_forward, by_backward", REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_refusals(fa1, changed, by_forward, by_backward):
    names = (
        "batch",
        "nheads",
        "nheads_k",
        "seqlen_q",
        "seqlen_k",
        "headdim",
        "dtype",
        "bias_dtype",
        "splits",
        "first_diagonal",
        "last_diagonal",
    )
    x = unwritten(1, 4, 2, 8)
    numbers = integers(x, x, x, None, mask_of(x, x))
    for name, value in changed.items():
        numbers[names.index(name)] = value
    s = unwritten(1, 2, 4)
    with pytest.raises(Refusal, match=re.escape(by_forward)):
        fa1.call("forward", x, x, x, None, x, None, s, s, s, numbers, 1.0, 0.0)
    with pytest.raises(Refusal, match=re.escape(by_backward)):
        fa1.call("backward", x, x, x, x, None, x, s, s, x, x, x, x, numbers, 1.0, 0.0)
    assert x.isnan().all() and s.isnan().all()


def test_missing_scratch_is_refused(fa1):
    x, s = unwritten(1, 4, 2, 8), unwritten(1, 2, 4)
    numbers = integers(x, x, x, None, mask_of(x, x))
    with pytest.raises(Refusal, match="fa1_backward: dq_sums is null: should have 64 floats"):
        fa1.call("backward", x, x, x, x, None, x, s, s, None, x, x, x, numbers, 1.0, 0.0)
    half = x.half()
    numbers = integers(half, half, half, None, mask_of(half, half))
    with pytest.raises(Refusal, match="fa1_forward: out_scratch is null: 16-bit dtypes need 64 floats of it"):
        fa1.call("forward", half, half, half, None, half, None, s, s, s, numbers, 1.0, 0.0)


def test_with_little_shared_memory(fa1):
    """Smaller tiles are chosen. If no tile fits, the refusal has the numbers."""
    needs = "needs {} bytes of shared memory with tiles of {} queries and 16 keys, the device has 24576"
    with small_device(24 * 1024):
        fa1.check(*tensors(40, 70, 32), bias=randn(1, 1, 1, 70), causal="bottom_right")
        q, k, v, _ = tensors(20, 20, 300)
        with pytest.raises(Refusal, match="fa1_forward: headdim=300 " + needs.format(83200, 8)):
            fa1.forward(q, k, v)
    q, k, v, dout = tensors(20, 20, 128)
    got = fa1.forward(q, k, v)
    with small_device(24 * 1024), pytest.raises(Refusal, match="fa1_backward: headdim=128 " + needs.format(36352, 16)):
        fa1.backward(dout, q, k, v, got["out"], got["lse"])
