"""Tests of the backward that the laws do not cover: shared keys, a GPU's tiles on the CPU, wrong
arguments.
"""

import pytest
import torch

from flash_attest.impls.numba.device import EMULATED, lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.numba import attention, tuning
from flash_attest.impls.numba.attention import Algorithm
from flash_attest.impls.numba.backward import backward_bytes, splits_of
from flash_attest.impls.numba.bias_gradient import bias_gradient_bytes
from flash_attest.impls.numba.tuning import TILES, Tile
from tests.impls.cuda.values import randn
from tests.impls.numba.calls import DEVICE, GRADIENTS, dout_of, inputs, is_attention
from tests.impls.operator_checks import assert_same_bits

BYTES = {"backward": backward_bytes, "bias_gradient": bias_gradient_bytes}


def tensors(seqlen_q, seqlen_k, headdim, nheads=2, bias=None):
    """Return q, k, v, bias of one batch and one key head. They do not require gradients."""
    q, k, v = (
        randn(1, n, h, headdim, device=DEVICE, seed=n) for n, h in ((seqlen_q, nheads), (seqlen_k, 1), (seqlen_k, 1))
    )
    return q, k, v, None if bias is None else randn(*bias, device=DEVICE, seed=5)


def differentiated(name, q, k, v, bias, dout=None, **options):
    """Return {"dq", "dk", "dv"} and, with a bias, "dbias"."""
    way = Algorithm(name)
    out, lse = way.forward(q, k, v, bias=bias, **options)
    return dict(zip(GRADIENTS, way.backward(dout_of(q) if dout is None else dout, q, k, v, out, lse, bias=bias, **options),
                    strict=False))  # fmt: skip


# --- keys shared by several blocks ----------------------------------------------------------------


def test_how_many_blocks_share_the_keys_of_a_head():
    """The shape of k decides this, not the device, so the bits of dq are the same everywhere."""
    lengths = {(1, 130, 1): 3, (1, 64, 1): 1, (1, 5000, 1): 8, (200, 5000, 1): 4, (100, 5000, 8): 1, (0, 0, 0): 1}
    assert {shape: splits_of(torch.zeros(*shape, 8)) for shape in lengths} == lengths


# Under a causal mask, the later blocks have no dq for early queries. With a window, any block may
# have none, and a block's first tile is not the first that a query sees.
MASKS = (dict(causal=True), dict(window=(20, 3), softcap=2.0), dict(window=(None, 0)), dict(window=(33, None)))
each_mask = pytest.mark.parametrize("mask", MASKS, ids=str)


@pytest.mark.parametrize("seqlen_q", (20, 150))
@each_mask
def test_gradients_if_several_blocks_share_the_keys(seqlen_q, mask):
    """The dq that a block does not write is not added."""
    x = tensors(seqlen_q, 150, 16)
    assert splits_of(x[1]) == 3
    got = differentiated("fa2", *x, **mask)
    is_attention(got, *x, **mask)
    again = differentiated("fa2", *x, **mask)
    for name in got:
        assert_same_bits(again[name], got[name])


@each_mask
def test_sums_of_dq_that_no_block_writes_are_not_read(mask, monkeypatch):
    """A NaN in the scratch memory does not reach any gradient."""
    x = tensors(150, 150, 16)
    want = differentiated("fa2", *x, **mask)
    compute = attention.backward
    position = 8  # of dq_sums among the arguments

    def with_nan(*given):
        given[position].fill_(torch.nan)
        assert given[position].numel() == 3 * x[0].numel()
        compute(*given)

    monkeypatch.setattr(attention, "backward", with_nan)
    for name, got in differentiated("fa2", *x, **mask).items():
        assert_same_bits(got, want[name])


def test_a_query_head_that_shares_a_key_head_keeps_its_own_dq():
    q, k, v, _ = tensors(20, 37, 16, nheads=3)
    whole = differentiated("fa2", q, k, v, None)
    for h in range(3):
        of_head = differentiated("fa2", q[:, :, h : h + 1], k, v, None, dout=dout_of(q)[:, :, h : h + 1])
        assert_same_bits(of_head["dq"], whole["dq"][:, :, h : h + 1])


# --- tiles ----------------------------------------------------------------------------------------


def thorough_but(*quick):
    """Return every tile of both kernels.

    All tiles except the quick ones are marked thorough, because each compiles for seconds.
    """
    return [
        pytest.param(
            *(name, tile),
            id=f"{name}-{tile.M}-{tile.N}-{tile.D}",
            marks=() if (name, tile) in quick else pytest.mark.thorough,
        )
        for name in BYTES
        for tile in TILES[name]
    ]


@pytest.mark.parametrize("name, tile", thorough_but(("bias_gradient", Tile(64, 64, 64))))
def test_each_tile_computes_gradients(name, tile, monkeypatch):
    """Lengths are not multiples of a tile. Head dims are the largest one, and one without wide
    loads.
    """
    monkeypatch.setitem(tuning.EMULATED_TILES if EMULATED else tuning.TILES, name, (tile,))
    for headdim in (tile.D, tile.D - 3):
        for bias in ((1, 2, tile.M + 7, tile.N + 9), (1, 1, 1, tile.N + 9))[: 2 if name == "bias_gradient" else 1]:
            x = tensors(tile.M + 7, tile.N + 9, headdim, bias=bias)
            is_attention(differentiated("fa2", *x, causal=True), *x, causal=True)


@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("headdim", (64, 128, 256))
def test_every_gpu_has_a_tile_that_fits(name, headdim, monkeypatch):
    """Consumer GPUs have 99 KiB (sm_86, sm_89). This is enough even for head dims beyond 128."""
    monkeypatch.setattr(tuning, "EMULATED", False)
    monkeypatch.setattr(tuning, "shared_memory_limit", lambda device: 99 * 1024)
    tile = tuning.choose(name, BYTES[name], headdim, torch.device(DEVICE))
    assert BYTES[name](*tile) <= 99 * 1024
    assert tile in [each for each in TILES[name] if headdim == each.D]


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("lse", lambda x: x.half()), ("out", lambda x: x[:, :1]), ("dout", lambda x: x[..., :8]), ("lse", lambda x: None)],
    ids=("lse_half", "out_of_one_row", "dout_of_half_the_columns", "lse_missing"),
)
@pytest.mark.parametrize("algorithm", ("fa1", "fa2"))
def test_backward_refuses_what_forward_did_not_give(algorithm, name, wrong):
    q, k, v, _ = tensors(5, 9, 16)
    way = Algorithm(algorithm)
    out, lse = way.forward(q, k, v)
    given = dict(dout=out, out=out, lse=lse)
    given[name] = wrong(given[name])
    with pytest.raises(ValueError, match=rf"^{name} is .*should be"):
        way.backward(given["dout"], q, k, v, given["out"], given["lse"])


def test_lse_of_any_strides_gives_the_same_gradients():
    q, k, v, _ = (x if x is None else x.detach() for x in inputs(bias=None))
    way = Algorithm("fa2")
    out, lse = way.forward(q, k, v)
    strided = lse.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    for mine, other in zip(way.backward(out, q, k, v, out, strided), way.backward(out, q, k, v, out, lse), strict=True):
        assert_same_bits(mine, other)
