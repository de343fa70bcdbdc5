"""Correct kernels keep the conservation laws; a missing key or a wrong delta breaks them."""

import pytest
import torch
from torch.nn.attention import SDPBackend

from flash_attest.oracle import FORM_OF_REGIME, Z_LIMIT, score
from tests.oracle.attentions import BIAS_SHAPES, DTYPES, Precision, dense, double, draw, draw_biased, sdpa, stored
from tests.oracle.calls import conservation
from tests.thorough import covering

LAW_SIZES = ((1, 129, 257, 2, 64), (2, 7, 5, 3, 16), (1, 1500, 700, 1, 32))


@pytest.mark.parametrize(
    "dtype, regime", covering(1, {str(dtype): dtype for dtype in DTYPES}, {regime: regime for regime in FORM_OF_REGIME})
)
def test_conservation_holds_without_an_oracle(dtype, regime):
    for size in LAW_SIZES:
        q, k, v, dout = draw(regime, size, dtype)
        got = sdpa(SDPBackend.MATH, q, k, v, dout, True)
        form = FORM_OF_REGIME[regime]
        laws = conservation(q, k, v, dout, got, causal=True, alignment="top_left", precision=Precision(), form=form)
        for name, (residual, sigma) in laws.items():
            z = score(residual, torch.zeros_like(residual), sigma, torch.float64, form).worst_z
            assert z <= Z_LIMIT, f"{size} {name}: z {z:.1f}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", BIAS_SHAPES, ids=str)
def test_conservation_holds_with_bias_and_shared_heads(shape, dtype):
    q, k, v, dout, bias = draw_biased(shape, dtype)
    got = sdpa(SDPBackend.MATH, q, k, v, dout, False, bias)
    laws = conservation(q, k, v, dout, got, bias=bias, precision=Precision())
    assert set(laws) == {"sum_dk", "sum_dbias", "q_dq", "v_dv"}
    for name, (residual, noise) in laws.items():
        s = score(residual, torch.zeros_like(residual), noise, torch.float64)
        assert s.worst_z <= Z_LIMIT, f"{name}: z {s.worst_z:.1f}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conservation_detects_a_wrong_delta_and_a_lost_key(dtype):
    q, k, v, dout = draw("mean", (1, 1500, 700, 1, 32), dtype)

    def zs(record):
        laws = conservation(q, k, v, dout, stored(record, dtype), precision=Precision())
        return {n: score(r, torch.zeros_like(r), s, torch.float64).worst_z for n, (r, s) in laws.items()}

    clean = dense(*double((q, k, v, dout)))
    assert max(zs(clean).values()) <= Z_LIMIT
    assert zs(dense(*double((q, k, v, dout)), delta_factor=0.9))["sum_dk"] > Z_LIMIT
    clean.dv[:, -1] = 0
    assert zs(clean)["v_dv"] > Z_LIMIT
