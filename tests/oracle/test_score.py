"""Scores of errors: infinities, overflow, the last rounding, the rms, and pairs of results."""

import math

import pytest
import torch

from flash_attest import oracle
from flash_attest.oracle import Z_LIMIT, pair_score, score

INF, NAN = math.inf, math.nan


def of(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(
    "got, want, sigma, z",
    [
        (1.0, 1.0, 0.0, 0.0),
        (1.0 + 2**-25, 1.0, 0.0, 0.0),  # the last rounding is not counted
        (1.5, 1.0, 0.0, INF),
        (2.0, 1.0, 0.5, 2.0),
        (NAN, 1.0, 1.0, INF),
        (1.0, NAN, 1.0, INF),
        (INF, 1.0, 1.0, INF),
        (-INF, -INF, 0.0, 0.0),
        (INF, -INF, 0.0, INF),
        (-1e4, -INF, 0.0, INF),
        (1.5, 1.0, NAN, INF),
        (0.0, 2.0**-150, 0.0, 0.0),  # less than half the smallest float32
    ],
)
def test_score_of_one_element(got, want, sigma, z):
    s = score(of(got), of(want), of(sigma), torch.float32)
    assert s.worst_z == pytest.approx(z, abs=1e-6)
    assert s.within == (z <= Z_LIMIT)
    assert s.z.shape == (1,)


def test_score_accepts_overflow_beyond_the_range_of_float16():
    want, sigma = of(7e4, -7e4, 7e4, 7e4), of(1.0, 1.0, 1.0, 1.0)
    got = torch.tensor([INF, -INF, 65504.0, -INF], dtype=torch.float16)
    assert score(got, want, sigma, torch.float16).z.tolist() == [0.0, 0.0, 0.0, INF]
    assert not score(got[:1], of(1e4), of(1.0), torch.float16).within


def test_score_of_no_elements_is_within():
    empty = torch.zeros(1, 0, 2, 3, dtype=torch.float64)
    assert score(empty, empty, empty, torch.float16).within


def test_score_refuses_another_shape():
    with pytest.raises(ValueError, match=r"got has shape \(2,\), should be \(1,\)"):
        score(of(1, 2), of(1), of(1), torch.float32)


def test_small_errors_in_all_elements_show_only_in_the_rms():
    generator = torch.Generator().manual_seed(0)
    want = torch.randn(2, 500, 2, 32, generator=generator, dtype=torch.float64)
    error = torch.randn(want.shape, generator=generator, dtype=torch.float64)
    sigma = torch.full_like(want, 1e-3)
    right, wrong = (score(want + size * sigma * error, want, sigma, torch.float32) for size in (1, 1.8))
    assert right.within and right.rms_ratio == pytest.approx(0.9, abs=0.15)
    assert wrong.worst_z > 5 and not wrong.within


def test_score_of_a_pair_allows_the_noise_of_both():
    a, b, sigma = of(4.0), of(1.0), of(1.0)
    assert pair_score(a, b, sigma, sigma, torch.float64).worst_z == pytest.approx(3 / math.sqrt(2))
    assert pair_score(a, b, sigma, sigma, torch.float64, "linear").worst_z == pytest.approx(1.5)
    u = oracle.roundoff(torch.float16)
    assert pair_score(of(1 + 1.9 * u), of(1.0), of(0.0), of(0.0), torch.float16).worst_z == 0
