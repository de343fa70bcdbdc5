"""Merging parts: neutral ones, extreme ones, and what is refused."""

import pytest
import torch

from flash_attest.impls.triton.device import lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.triton.paged import merge_parts
from tests.impls.triton.calls import DEVICE, randn

INF = float("inf")


def parts(n=3, batch=2, seqlen_q=20, nheads=3, headdim_v=8):
    return randn(n, batch, seqlen_q, nheads, headdim_v), 3 * randn(n, batch, nheads, seqlen_q)


@pytest.mark.parametrize("n", (1, 2, 64, 100))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=("float32", "bfloat16"))
def test_merge_is_the_weighted_mean(n, dtype):
    outs, lses = parts(n, headdim_v=33)
    out, lse = merge_parts(outs, lses, out_dtype=dtype)
    weights = lses.double().softmax(0).transpose(2, 3)[..., None]
    torch.testing.assert_close(lse.double(), lses.double().logsumexp(0), rtol=1e-6, atol=1e-6)
    assert out.dtype == dtype and lse.dtype == torch.float32
    torch.testing.assert_close(out, (weights * outs.double()).sum(0).to(dtype))


def test_parts_without_keys_are_neutral():
    """Bit for bit, wherever they stand. Without any other part, out is 0 and lse -inf."""
    outs, lses = parts(1)
    one = merge_parts(outs, lses, out_dtype=torch.float32)
    none, never = torch.zeros_like(outs), torch.full_like(lses, -INF)
    for order in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        several = [torch.cat([(x, y)[n] for n in order]) for x, y in ((outs, none), (lses, never))]
        for got, want in zip(merge_parts(*several, out_dtype=torch.float32), one, strict=True):
            assert torch.equal(got, want)
    out, lse = merge_parts(torch.cat([none, none]), torch.cat([never, never]), out_dtype=torch.float16)
    assert (out == 0).all() and (lse == -INF).all()


@pytest.mark.parametrize("level", (-1e30, -1e4, 1e4, 1e30))
def test_weights_do_not_overflow(level):
    """Only differences of lse count: two equal parts have their mean, and ln 2 more."""
    outs, _ = parts(2)
    lses = torch.full((2, 2, 3, 20), level, device=DEVICE)
    out, lse = merge_parts(outs, lses, out_dtype=torch.float32)
    torch.testing.assert_close(out, outs.mean(0))
    torch.testing.assert_close(lse, lses[0] + 0.6931471805599453)
    lses[1] = -1e30 if level > 0 else 1e30  # the larger part alone
    out, _ = merge_parts(outs, lses, out_dtype=torch.float32)
    assert torch.equal(out, outs[0 if level > 0 else 1])


REFUSED = {
    "outs_of_4_dimensions": (lambda x, y: (x[0], y), torch.float16, "out_parts has shape"),
    "lses_of_3_dimensions": (lambda x, y: (x, y[0]), torch.float16, "lse_parts has shape"),
    "half_outs": (lambda x, y: (x.half(), y), torch.float16, "out_parts is .*torch.float16 .*: should be .*torch.float32"),
    "lses_like_outs": (lambda x, y: (x, y.transpose(2, 3)), torch.float16, "lse_parts is"),
    "no_parts": (lambda x, y: (x[:0], y[:0]), torch.float16, "out_parts has shape .*: should have at least one part"),
    "double": (lambda x, y: (x, y), torch.float64, "out_dtype is torch.float64"),
    "elsewhere": (lambda x, y: (x, y.to("meta")), torch.float16, "lse_parts is .* on meta"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "dtype", "words"), REFUSED.values(), ids=REFUSED)
def test_wrong_parts_are_refused(change, dtype, words):
    with pytest.raises(ValueError, match=words):
        merge_parts(*change(*parts()), out_dtype=dtype)


def test_parts_of_any_strides_and_no_rows():
    outs, lses = parts()
    expected = merge_parts(outs, lses, out_dtype=torch.float32)
    strided = outs.transpose(0, 3).contiguous().transpose(0, 3), lses.transpose(2, 3).contiguous().transpose(2, 3)
    assert all(map(torch.equal, merge_parts(*strided, out_dtype=torch.float32), expected))
    out, lse = merge_parts(outs[:, :, :0], lses[..., :0], out_dtype=torch.float32)
    assert out.shape == (2, 0, 3, 8) and lse.shape == (2, 3, 0)
