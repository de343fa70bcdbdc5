"""Inputs have the distribution of their regime. Each distribution exposes a different class of
bugs.
"""

import pytest
import torch

from flash_attest import oracle
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.bias_masks import rows_without_keys
from flash_attest.properties.cases.case import DTYPES, REGIMES, Case
from flash_attest.properties.cases.features import SCALES, mask_of, variant_of
from flash_attest.properties.cases.inputs import GAP, build
from flash_attest.properties.cases.random_tensors import RandomTensors

HEADDIMS = (1, 2, 3, 8, 40, 64, 65, 128, 256)


def case(regime: str = "spread", **changed) -> Case:
    return Case(**(dict(batch=2, seqlen_q=40, seqlen_k=40, headdim=64, regime=regime) | changed))


def scores(c: Case, x: Inputs | None = None) -> torch.Tensor:
    """Return softmax_scale <q_i, k_j> in float64, (b, h, i, j), for nheads = nheads_k."""
    x = x or build(c, "cpu")
    return c.scale * torch.einsum("bihd,bjhd->bhij", x.q.double(), x.k.double())


def lse(c: Case) -> torch.Tensor:
    x = build(c, "cpu")
    return oracle.attention(x.q, x.k, x.v, variant_of(c, "bottom_right", x)).lse


each_headdim = pytest.mark.parametrize("headdim", HEADDIMS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
each_regime = pytest.mark.parametrize("regime", REGIMES)
each_scale = pytest.mark.parametrize("scale", [*SCALES, -1.0, 2.0])


# --- regimes --------------------------------------------------------------------------------------


@each_regime
@each_dtype
def test_inputs_are_finite_in_every_dtype(regime, dtype):
    """The largest float16 is 65504."""
    for headdim in (1, 64, 1024):
        for scale in (*SCALES, 0.0, -1.0, 2.0, 2.0**-10):
            x = build(case(regime, headdim=headdim, dtype=dtype, softmax_scale=scale), "cpu")
            assert all(bool(t.isfinite().all()) for _, t in x.items()), (headdim, scale)


@each_regime
def test_inputs_have_the_shapes_and_dtypes_of_the_case(regime):
    c = case(regime, seqlen_k=7, nheads=6, nheads_k=2, headdim=5, dtype=torch.bfloat16)
    x = build(c, "cpu")
    assert x.q.shape == x.dout.shape == (2, 40, 6, 5) and x.k.shape == x.v.shape == (2, 7, 2, 5) and x.bias is None
    assert {t.dtype for _, t in x.items()} == {torch.bfloat16} and all(t.is_contiguous() for _, t in x.items())


@each_regime
@pytest.mark.parametrize("empty", [dict(seqlen_q=0), dict(seqlen_k=0), dict(seqlen_q=0, seqlen_k=0)], ids=str)
def test_empty_cases_have_empty_tensors(regime, empty):
    x = build(case(regime, bias="matrix", bias_mask="left", **empty), "cpu")
    assert x.bias.numel() == 0 and (x.q.numel() == 0 or x.k.numel() == 0)


@each_regime
def test_no_input_is_constant(regime):
    """dout = 1, or equal rows of v, would hide most bugs of a backward."""
    x = build(case(regime), "cpu")
    assert all(len(t.unique()) > 1 and t.double().std() > 0.005 for _, t in x.items())


@each_headdim
@each_scale
def test_shifted_down_leaves_every_lse_below_minus_90(headdim, scale):
    """exp(0 - lse) of an unmasked padding key then overflows float32, because ln(3.4e38) = 88.7."""
    assert lse(case("shifted_down", headdim=headdim, softmax_scale=scale)).max() < -90


@each_headdim
@each_scale
def test_shifted_up_overflows_without_the_row_maximum(headdim, scale):
    assert scores(case("shifted_up", headdim=headdim, softmax_scale=scale)).amax(-1).min() > 89


@each_headdim
@pytest.mark.parametrize("regime", ["shifted_down", "shifted_up"])
@each_dtype
def test_shifted_scores_still_differ(regime, headdim, dtype):
    """If they were equal, the softmax would be flat, and a wrong P that sums to 1 could pass."""
    spread = scores(case(regime, headdim=headdim, dtype=dtype)).std(-1)
    assert spread.min() > 0.1 and spread.max() < 25


def test_flat_scores_are_close_together():
    for headdim in (1, 40, 64, 128, 256):
        s = scores(case("flat", headdim=headdim))
        assert (s.amax(-1) - s.amin(-1)).max() < 0.15 and s.std() > 0.002


def test_flat_stays_flat_under_another_scale():
    """With head dim 256, scale=1 is 16 times the default."""
    s = scores(case("flat", headdim=256, softmax_scale=1.0))
    assert (s.amax(-1) - s.amin(-1)).max() < 0.15


@each_headdim
def test_peaked_scores_give_a_few_keys_nearly_all_weight(headdim):
    s = scores(case("peaked", headdim=headdim))
    assert 4 < s.std() < 8
    assert s.softmax(-1).topk(5).values.sum(-1).median() > 0.9


def test_large_inputs_reach_10_and_do_not_exceed_it():
    for name, tensor in build(case("large"), "cpu").items():
        assert 9.9 < tensor.abs().max() <= 10, name


def test_exact_inputs_are_small_integers():
    c = case("exact", bias="matrix", bias_dtype=torch.float16, dtype=torch.bfloat16)
    for name, tensor in build(c, "cpu").items():
        assert torch.equal(tensor, tensor.round()) and 2 <= tensor.abs().max() <= 3, name


def test_mean_values_are_around_one():
    x = build(case("mean"), "cpu")
    assert all(abs(t.mean() - 1) < 0.05 for t in (x.v, x.dout))
    assert all(abs(t.mean()) < 0.05 for t in (x.q, x.k))


def test_uneven_rows_of_a_tile_share_no_maximum():
    """exp(S - m) is 0 in float32 if m is the maximum of a row that lies 160 above."""
    top = scores(case("uneven", seqlen_q=16, batch=40)).amax(-1)
    assert ((top.amax(-1) - top.amin(-1)) > 110).float().mean() > 0.95


@pytest.mark.parametrize("headdim", [16, 64])
def test_rising_scores_move_the_maximum_of_a_row_in_every_tile(headdim):
    top = scores(case("rising", headdim=headdim, seqlen_k=256, batch=8)).unflatten(-1, (-1, 16)).amax(-1)
    assert float((top.diff(dim=-1) > 0).double().mean()) > 0.8


def test_uneven_scores_rise_along_the_keys_and_fall_in_other_rows():
    """The maximum of a row moves from tile to tile, and several keys still have a weight."""
    c = case("uneven", batch=30, seqlen_k=128)
    s = scores(c)
    slope = (s[..., 64:].mean(-1) - s[..., :64].mean(-1)) / 64 * 16
    assert slope.min() < -3 and slope.max() > 3 and slope.abs().max() < 8
    assert (s.softmax(-1).amax(-1) < 0.9).float().mean() > 0.5


SIZES = [  # the largest that a GPU draws, one query, few keys, head dims with a small and a large default scale
    dict(seqlen_q=1100, nheads=16, nheads_k=1, batch=1), dict(seqlen_q=1), dict(seqlen_k=2), dict(headdim=1),
    dict(headdim=256, seqlen_k=3), dict(softmax_scale=1.0), dict(softmax_scale=-0.25), dict(softmax_scale=2.0**-10),
    dict(bias="vector", bias_dtype=torch.float16), dict(bias="matrix", bias_dtype=torch.float16, nheads=3, nheads_k=3),
]  # fmt: skip


def answers(c: Case) -> oracle.Attention:
    x = build(c, "cpu")
    return oracle.attention(x.q, x.k, x.v, variant_of(c, "bottom_right", x), dout=x.dout)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_no_result_of_one_sign_overflows_in_float16(sizes):
    for seed in range(5):
        want = answers(case("one_sign", dtype=torch.float16, seed=seed, **sizes))
        results = [t for t in (want.out, want.dq, want.dk, want.dv, want.dbias) if t is not None]
        assert max(float(t.abs().max()) for t in results) < 60000, seed


@pytest.mark.parametrize("headdim", [64, 96, 128, 256])
def test_before_it_is_scaled_dq_of_one_sign_overflows_in_float16(headdim):
    c = case("one_sign", headdim=headdim, dtype=torch.float16)
    x = build(c, "cpu")
    assert answers(c).dq.abs().max() / c.scale > 65504
    assert min(float(t.min()) for t in (x.k, x.v, x.dout)) > 0
    assert scores(c).std() < 4


def test_before_it_is_divided_out_of_one_sign_overflows_in_float16():
    """P is 1 for the largest score of a row, and v is as large as out may be."""
    c = case("one_sign", seed=1, dtype=torch.float16, seqlen_k=64)
    s = scores(c)
    p = (s - s.amax(-1, keepdim=True)).exp()
    sums = torch.einsum("bhij,bjhd->bihd", p, build(c, "cpu").v.double())
    assert (sums.amax(-1) > 65504).double().mean() > 0.9
    assert float(build(c, "cpu").dout.min()) > 2.0**-14  # the smallest normal number


def test_spread_is_standard_normal():
    for name, tensor in build(case("spread"), "cpu").items():
        assert abs(tensor.mean()) < 0.05 and abs(tensor.std() - 1) < 0.05, name


# --- selecting: one key wins ----------------------------------------------------------------------


def decided(c: Case) -> torch.Tensor:
    """Return bool (b, i, h), true for rows in which out is a row of v and one visible score leads
    by GAP.
    """
    x = build(c, "cpu")
    seen = mask_of(c, "bottom_right").visible(c.seqlen_q, c.seqlen_k)
    top = scores(c, x).masked_fill(~seen, -1e9).topk(2, dim=-1)
    leads = (top.values[..., 0] - top.values[..., 1] >= GAP).transpose(1, 2)
    out = oracle.attention(x.q, x.k, x.v, variant_of(c, "bottom_right", x)).out
    v = x.v.double().gather(1, top.indices[..., 0].transpose(1, 2)[..., None].expand(-1, -1, -1, c.headdim))
    return leads & (out == v).all(-1)


@pytest.mark.parametrize("headdim", [6, 8, 64, 256])
@each_scale
@each_dtype
def test_selecting_has_a_winning_key_in_every_row(headdim, scale, dtype):
    assert decided(case("selecting", headdim=headdim, softmax_scale=scale, dtype=dtype)).all()


@pytest.mark.parametrize("sizes", [(40, 40), (40, 60), (60, 40), (1, 40), (40, 2)], ids=str)
def test_selected_key_is_visible_under_causal(sizes):
    seqlen_q, seqlen_k = sizes
    rows = decided(case("selecting", seqlen_q=seqlen_q, seqlen_k=seqlen_k, causal=True))
    sees_two = oracle.Mask(causal=True).visible(seqlen_q, seqlen_k).sum(1) > 1
    assert rows[:, sees_two].all()


def test_selecting_with_a_small_head_dim_has_a_winning_key_in_some_rows():
    """Only 2^headdim keys are distinct. The other keys are 0, and no key wins for their queries."""
    share = decided(case("selecting", headdim=2, batch=8)).float().mean()
    assert 0.03 < share < 0.5


def test_selecting_picks_many_different_keys():
    c = case("selecting")
    assert len(scores(c).argmax(-1).unique()) > 20


def test_query_heads_of_a_group_pick_the_same_key():
    x = build(case("selecting", nheads=4, nheads_k=2), "cpu")
    assert torch.equal(x.q[:, :, 0], x.q[:, :, 1]) and not torch.equal(x.q[:, :, 1], x.q[:, :, 2])


# --- sinks that are off ---------------------------------------------------------------------------


@pytest.mark.parametrize("hides", [dict(), dict(bias="matrix", bias_mask="dead_row"), dict(seqlen_k=0)])
def test_dlse_is_0_where_a_row_sees_neither_a_key_nor_a_sink(hides):
    """It is 0 so under either alignment, and in no other row."""
    c = case(seqlen_q=40, **(dict(seqlen_k=30) | hides), causal=not hides, nheads=4, sinks="some_off", dlse=True)
    x = build(c, "cpu")
    blind = torch.stack([rows_without_keys(c, alignment, x) for alignment in oracle.ALIGNMENTS]).any(0)
    undefined = blind & (x.sinks == -torch.inf)[:, None]
    assert undefined.any() and blind[:, x.sinks > -torch.inf].any()
    assert torch.equal(x.dlse == 0, undefined)


# --- draws ----------------------------------------------------------------------------------------


def test_draws_for_different_words_differ():
    a, b = (RandomTensors(Case(), "cpu", word).normal((8,)) for word in ("keys", "order"))
    assert not torch.equal(a, b)


def test_a_draw_depends_only_on_case_and_word():
    before = RandomTensors(Case(seed=3), "cpu", "keys").normal((8,))
    torch.manual_seed(5)
    assert torch.equal(RandomTensors(Case(seed=3), "cpu", "keys").normal((8,)), before)


def test_draws_stay_within_their_bounds():
    draw = RandomTensors(Case(), "cpu")
    assert set(draw.integers((500,), -2, 2).tolist()) == {-2, -1, 0, 1, 2}
    assert -3 <= draw.uniform((500,), -3, 5).min() < -2.5 and 4.5 < draw.uniform((500,), -3, 5).max() <= 5
    assert sorted(draw.order(9).tolist()) == list(range(9))
    assert {draw.number(2, 4) for _ in range(60)} == {2, 3, 4}
