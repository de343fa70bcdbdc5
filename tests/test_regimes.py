"""Inputs are what their regime, bias mask and layout promise: a distribution that drifts hides the bugs it was made for."""

import math

import pytest
import torch

import oracle
from impls.handover import Inputs
from properties.case import BIAS_MASKS, DTYPES, LAYOUTS, REGIMES, Case
from properties.layouts import MARGIN, lay_out, place
from properties.regimes import FINITE_MASK, GAP, Draw, build, hidden_by_bias
from properties.strategies import SCALES

HEADDIMS = (1, 2, 3, 8, 40, 64, 65, 128, 256)
INF = math.inf


pytestmark = pytest.mark.usefixtures("one_thread")


def case(regime: str = "spread", **changed) -> Case:
    return Case(**(dict(batch=2, seqlen_q=40, seqlen_k=40, headdim=64, regime=regime) | changed))


def scores(c: Case, x: Inputs | None = None) -> torch.Tensor:
    """softmax_scale <q_i, k_j> in float64, (b, h, i, j), nheads = nheads_k."""
    x = x or build(c, "cpu")
    return c.scale * torch.einsum("bihd,bjhd->bhij", x.q.double(), x.k.double())


def lse(c: Case) -> torch.Tensor:
    x = build(c, "cpu")
    return oracle.attention(x.q, x.k, x.v, causal=c.causal, softmax_scale=c.softmax_scale).lse


each_headdim = pytest.mark.parametrize("headdim", HEADDIMS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
each_regime = pytest.mark.parametrize("regime", REGIMES)
each_scale = pytest.mark.parametrize("scale", [None, *SCALES, -1.0, 2.0])


# --- regimes ----------------------------------------------------------------------------------------------------------


@each_regime
@each_dtype
def test_inputs_are_finite_in_every_dtype(regime, dtype):
    """float16 ends at 65504."""
    for headdim in (1, 64, 1024):
        for scale in (None, *SCALES, 0.0, -1.0, 2.0, 2.0**-10):
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
    """dout = 1, or v alike in every row, hides most mistakes of a backward."""
    x = build(case(regime), "cpu")
    assert all(len(t.unique()) > 1 and t.double().std() > 0.005 for _, t in x.items())


@each_headdim
@each_scale
def test_shifted_down_leaves_every_lse_below_minus_90(headdim, scale):
    """exp(0 - lse) of a forgotten padding key then overflows float32: ln(3.4e38) = 88.7."""
    assert lse(case("shifted_down", headdim=headdim, softmax_scale=scale)).max() < -90


@each_headdim
@each_scale
def test_shifted_up_overflows_without_the_row_maximum(headdim, scale):
    assert scores(case("shifted_up", headdim=headdim, softmax_scale=scale)).amax(-1).min() > 89


@each_headdim
@pytest.mark.parametrize("regime", ["shifted_down", "shifted_up"])
@each_dtype
def test_shifted_scores_still_differ(regime, headdim, dtype):
    """Otherwise softmax is flat, and P could be anything that sums to 1."""
    spread = scores(case(regime, headdim=headdim, dtype=dtype)).std(-1)
    assert spread.min() > 0.1 and spread.max() < 25


def test_flat_scores_lie_close_together():
    for headdim in (1, 40, 64, 128, 256):
        s = scores(case("flat", headdim=headdim))
        assert (s.amax(-1) - s.amin(-1)).max() < 0.15 and s.std() > 0.002


def test_flat_stays_flat_under_another_scale():
    """scale=1 on head dim 256 is 16 times the default."""
    s = scores(case("flat", headdim=256, softmax_scale=1.0))
    assert (s.amax(-1) - s.amin(-1)).max() < 0.15


@each_headdim
def test_peaked_scores_give_a_few_keys_nearly_everything(headdim):
    s = scores(case("peaked", headdim=headdim))
    assert 4 < s.std() < 8
    assert s.softmax(-1).topk(5).values.sum(-1).median() > 0.9


def test_large_reaches_ten_and_not_beyond():
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


def test_spread_is_standard_normal():
    for name, tensor in build(case("spread"), "cpu").items():
        assert abs(tensor.mean()) < 0.05 and abs(tensor.std() - 1) < 0.05, name


# --- selecting: one key wins ------------------------------------------------------------------------------------------


def decided(c: Case) -> torch.Tensor:
    """bool (b, i, h): rows where the oracle's out is a row of v, and the best visible score leads by GAP."""
    x = build(c, "cpu")
    seen = oracle.visible(c.seqlen_q, c.seqlen_k, causal=c.causal)
    top = scores(c, x).masked_fill(~seen, -1e9).topk(2, dim=-1)
    leads = (top.values[..., 0] - top.values[..., 1] >= GAP).transpose(1, 2)
    out = oracle.attention(x.q, x.k, x.v, causal=c.causal, softmax_scale=c.softmax_scale).out
    v = x.v.double().gather(1, top.indices[..., 0].transpose(1, 2)[..., None].expand(-1, -1, -1, c.headdim))
    return leads & (out == v).all(-1)


@pytest.mark.parametrize("headdim", [6, 8, 64, 256])
@each_scale
@each_dtype
def test_selecting_decides_every_row(headdim, scale, dtype):
    assert decided(case("selecting", headdim=headdim, softmax_scale=scale, dtype=dtype)).all()


@pytest.mark.parametrize("sizes", [(40, 40), (40, 60), (60, 40), (1, 40), (40, 2)], ids=str)
def test_selected_key_is_visible_under_causal(sizes):
    seqlen_q, seqlen_k = sizes
    rows = decided(case("selecting", seqlen_q=seqlen_q, seqlen_k=seqlen_k, causal=True))
    sees_two = oracle.visible(seqlen_q, seqlen_k, causal=True).sum(1) > 1
    assert rows[:, sees_two].all()


def test_small_head_dims_decide_some_rows():
    """2^headdim keys can be told apart; the others are 0, and a query that wants one of them decides nothing."""
    share = decided(case("selecting", headdim=2, batch=8)).float().mean()
    assert 0.03 < share < 0.5


def test_selecting_picks_many_different_keys():
    c = case("selecting")
    assert len(scores(c).argmax(-1).unique()) > 20


def test_query_heads_of_a_group_pick_the_same_key():
    x = build(case("selecting", nheads=4, nheads_k=2), "cpu")
    assert torch.equal(x.q[:, :, 0], x.q[:, :, 1]) and not torch.equal(x.q[:, :, 1], x.q[:, :, 2])


# --- draws ------------------------------------------------------------------------------------------------------------


def test_a_word_keeps_two_draws_of_a_case_apart():
    a, b = (Draw(Case(), "cpu", word).normal((8,)) for word in ("keys", "order"))
    assert not torch.equal(a, b)


def test_a_draw_depends_on_case_and_word_alone():
    before = Draw(Case(seed=3), "cpu", "keys").normal((8,))
    torch.manual_seed(5)
    assert torch.equal(Draw(Case(seed=3), "cpu", "keys").normal((8,)), before)


def test_draws_keep_to_their_bounds():
    draw = Draw(Case(), "cpu")
    assert set(draw.integers((500,), -2, 2).tolist()) == {-2, -1, 0, 1, 2}
    assert -3 <= draw.uniform((500,), -3, 5).min() < -2.5 and 4.5 < draw.uniform((500,), -3, 5).max() <= 5
    assert sorted(draw.order(9).tolist()) == list(range(9))
    assert {draw.number(2, 4) for _ in range(60)} == {2, 3, 4}


# --- bias -------------------------------------------------------------------------------------------------------------


def biased(mask: str, kind: str = "matrix", **changed) -> Case:
    return case(bias=kind, bias_mask=mask, nheads=3, nheads_k=3, bias_batch=2, bias_nheads=3, **changed)


def hidden(c: Case) -> torch.Tensor:
    return build(c, "cpu").bias == -INF


@pytest.mark.parametrize("mask", BIAS_MASKS)
@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_bias_has_its_shape_and_dtype(mask, kind):
    c = biased(mask, kind, bias_dtype=torch.bfloat16)
    bias = build(c, "cpu").bias
    assert bias.shape == c.bias_shape and bias.dtype == torch.bfloat16


@pytest.mark.parametrize("mask", ["none", "finite", "alibi"])
def test_masks_without_infinity_hide_nothing(mask):
    assert not hidden(biased(mask)).any()


def test_right_padding_hides_the_last_keys():
    rows = hidden(biased("right"))
    assert not rows[..., 0].any() and rows[..., -1].any()
    assert bool((rows.int().diff(dim=-1) >= 0).all())
    assert len(rows.sum(-1).unique()) > 1


def test_left_padding_hides_the_first_keys():
    rows = hidden(biased("left"))
    assert not rows[..., -1].any() and rows[..., 0].any()
    assert bool((rows.int().diff(dim=-1) <= 0).all())


@pytest.mark.parametrize("mask", ["left", "right", "window"])
def test_padding_leaves_every_query_a_key(mask):
    """A row without keys is dead_row's."""
    assert (
        not hidden(case(bias="vector", bias_mask=mask, batch=30, bias_batch=30, seqlen_q=2, seqlen_k=2)).all(-1).any()
    )


@pytest.mark.parametrize("seqlen_k", [40, 60])
def test_a_window_ends_with_the_query_itself(seqlen_k):
    """Counted from the end, as bottom-right alignment does."""
    c = biased("window", seqlen_k=seqlen_k)
    seen = ~hidden(c)
    i = torch.arange(c.seqlen_q) + seqlen_k - c.seqlen_q
    assert seen[..., torch.arange(c.seqlen_q), i].all()
    assert not (seen & (torch.arange(seqlen_k) > i[:, None])).any()
    width = seen.sum(-1)
    assert torch.equal(width, torch.minimum(i + 1, width[..., -1:]).expand_as(width))


def test_a_dead_row_is_one_row():
    rows = hidden(biased("dead_row"))
    assert torch.equal(rows.all(-1).sum(-1), torch.ones(2, 3)) and torch.equal(rows.any(-1), rows.all(-1))


def test_finite_hides_with_a_number_what_right_hides_with_infinity():
    finite, right = build(biased("finite"), "cpu").bias, build(biased("right"), "cpu").bias
    assert torch.equal(finite == FINITE_MASK, right == -INF) and torch.equal(finite[right > -INF], right[right > -INF])
    assert (finite == FINITE_MASK).any()


def test_alibi_falls_off_from_the_diagonal_by_head():
    c = case(bias="matrix", bias_mask="alibi", nheads=8, nheads_k=8, bias_nheads=8, seqlen_k=60)
    bias = build(c, "cpu").bias[0]
    assert [bias[h, 0, 20].item() for h in (0, 7)] == [0, 0]
    assert [bias[h, 39, 57].item() for h in (0, 1, 7)] == [-1, -0.5, -1 / 128]  # slopes 2^-1, 2^-2, 2^-8


def test_what_a_mask_leaves_is_not_zero():
    bias = build(biased("left"), "cpu").bias
    assert bias[bias > -INF].std() > 0.8


def test_bias_of_flat_scores_is_flat():
    assert build(biased("none", regime="flat"), "cpu").bias.abs().max() < 0.1


def test_batches_and_heads_are_padded_differently():
    widths = hidden(biased("right"))[:, :, 0].sum(-1)
    assert len(widths.unique()) > 1


def test_no_keys_have_no_mask():
    c = biased("left", seqlen_k=0)
    assert hidden_by_bias(c, Draw(c, "cpu")) is None


# --- layouts ----------------------------------------------------------------------------------------------------------

STORED = [name for name in LAYOUTS if name != "mixed"]
SHAPE = (2, 5, 3, 8)
STRIDES = {  # of a (2, 5, 3, 8) tensor
    "contiguous": (120, 24, 8, 1),
    "transposed": (120, 8, 40, 1),
    "packed": (360, 72, 8, 1),
    "gapped": (360, 72, 24, 1),
    "last_strided": (240, 48, 16, 2),
}
each_layout = pytest.mark.parametrize("layout", STORED)


@pytest.fixture
def values():
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))


def test_every_layout_has_known_strides():
    assert set(STRIDES) == set(STORED)


@each_layout
@each_dtype
def test_placed_tensor_has_equal_values(values, layout, dtype):
    placed = place(values.to(dtype), layout, fill=math.nan)
    assert torch.equal(placed.tensor, values.to(dtype)) and placed.tensor.dtype == dtype


@each_layout
def test_placed_tensor_has_the_strides_of_its_layout(values, layout):
    assert place(values, layout, fill=0.0).tensor.stride() == STRIDES[layout]


def test_packed_rows_have_others_on_both_sides(values):
    """As k has in a packed qkv."""
    placed = place(values, "packed", fill=math.nan)
    assert placed.tensor.storage_offset() == MARGIN + 24


@each_layout
def test_everything_around_a_placed_tensor_is_filled(values, layout):
    placed = place(values, layout, fill=math.nan)
    assert int((~placed.buffer.isnan()).sum()) == values.numel()
    assert placed.buffer[:MARGIN].isnan().all() and placed.buffer[-MARGIN:].isnan().all()


@each_layout
def test_a_placed_tensor_lies_in_its_buffer(values, layout):
    placed = place(values, layout, fill=0.0)
    assert placed.tensor.untyped_storage().data_ptr() == placed.buffer.untyped_storage().data_ptr()


@each_layout
@each_dtype
def test_untouched_buffers_count_nothing(values, layout, dtype):
    """NaN is itself here: bits are compared."""
    assert place(values.to(dtype), layout, fill=math.nan).written() == 0


@each_layout
def test_a_write_before_or_behind_is_counted(values, layout):
    placed = place(values, layout, fill=math.nan)
    placed.buffer[MARGIN - 1] = placed.buffer[-MARGIN] = 1.0
    assert placed.written() == 2


@each_layout
def test_a_write_into_the_tensor_is_counted(values, layout):
    placed = place(values, layout, fill=math.nan)
    placed.tensor[1, 2] += 1
    assert placed.written() == 24


@pytest.mark.parametrize("layout", ["packed", "gapped", "last_strided"])
def test_a_write_between_rows_is_counted(values, layout):
    placed = place(values, layout, fill=math.nan)
    placed.buffer[MARGIN + int(placed.buffer[MARGIN:-MARGIN].isnan().nonzero()[0])] = 0.0
    assert placed.written() == 1


def test_minus_zero_is_a_write(values):
    placed = place(values * 0 + 0.0, "contiguous", fill=0.0)
    placed.tensor.neg_()
    assert placed.written() == values.numel()


def test_contiguous_tensors_are_handed_over_as_they_are(values):
    assert lay_out(values, "contiguous") is values


@pytest.mark.parametrize("layout", ["transposed", "packed", "gapped", "last_strided"])
def test_other_layouts_are_not_contiguous(values, layout):
    laid = lay_out(values, layout)
    assert torch.equal(laid, values) and not laid.is_contiguous()


@each_layout
def test_empty_tensors_can_be_placed(layout):
    assert place(torch.empty(2, 0, 3, 8), layout, fill=math.nan).written() == 0
