"""Decoding from pages: against the oracle, bit for bit where it is promised, and beyond 32 bits."""

import pytest
import torch

from flash_attest.impls import Precision
from flash_attest.impls.triton.device import EMULATED, lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.triton import paged
from flash_attest.impls.triton.paged import PagedDecode
from flash_attest.oracle import RMS_LIMIT, Z_LIMIT, Mask, Variant, attention, budget, score
from flash_attest.properties.cases.sparse_memory import spread
from flash_attest.races.tracing import tracing
from tests.impls.triton.calls import DEVICE, on_a_gpu, randn
from tests.impls.triton.pages import decode, in_pages, results, sequences

INF = float("inf")
LENGTHS = ((1, 5), (3, 100), (0, 40), (2, 0), (20, 70), (1, 1))
HALF, FULL = torch.float16, torch.float32


def check(of, results, dtype, causal=False, window=None, softmax_scale=None, softcap=None, sinks=None):
    """Compare each sequence with the definition, in units of the budget."""
    for s, (out, lse) in zip(of, results, strict=True):
        q, k, v = (x.cpu()[None] for x in s)
        variant = Variant(Mask(causal=causal, window=window), None, softmax_scale, softcap, sinks)
        want = attention(q, k, v, variant)
        sigma = budget(q, k, v, variant, want, precision=Precision(merge="lse"))
        for x, name, kind in ((out, "out", dtype), (lse, "lse", FULL)):
            got = score(x.cpu()[None], getattr(want, name), getattr(sigma, name), kind)
            assert got.worst_z <= Z_LIMIT and got.rms_ratio <= RMS_LIMIT, (name, s.q.shape, s.k.shape)


OPTIONS = {
    "plain": dict(),
    "causal": dict(causal=True, num_splits=2),
    "window": dict(causal=True, window=(3, None), num_splits=3),
    "both_sides": dict(window=(30, 2), num_splits=64),
    "everything": dict(
        causal=True, window=(40, 0), softcap=2.0, softmax_scale=-0.7, sinks=torch.arange(4.0), num_splits=3),
}  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("dtype", (HALF, FULL), ids=("float16", "float32"))
def test_ragged_sequences_match_the_definition(dtype, options):
    of = sequences(LENGTHS, dtype=dtype)
    given = {name: x.to(DEVICE) if name == "sinks" else x for name, x in options.items()}
    check(of, decode(of, **given), dtype, **{name: x for name, x in options.items() if name != "num_splits"})


@pytest.mark.parametrize("page_size", (1, 3, 16, 64))
@pytest.mark.parametrize(("nheads", "nheads_k"), ((1, 1), (6, 2), (5, 5), (40, 2)))
def test_pages_and_groups_of_any_size(nheads, nheads_k, page_size):
    """Groups of 3 and 20 heads are no powers of two; 20 is more than a tile has rows."""
    of = sequences(LENGTHS, nheads, nheads_k, headdim=8, headdim_v=33)
    check(of, decode(of, page_size, causal=True, num_splits=2), HALF, causal=True)


# --- the bits of a query --------------------------------------------------------------------------


@pytest.mark.parametrize("num_splits", (1, 3))
@pytest.mark.parametrize("window", (None, (40, 0)), ids=("full", "window"))
def test_a_query_has_the_same_bits_in_every_part_of_a_prompt(window, num_splits):
    """A prompt at once, in parts of 30, and query by query; alone or beside others."""
    whole, other = sequences(((90, 120), (7, 300)))
    options = dict(causal=True, window=window, num_splits=num_splits, sinks=randn(4))
    ((out, lse),) = decode([whole], **options)
    for step in (30, 1):
        parts = [whole.part(first, first + step) for first in range(0, 90, step)]
        for page_size, beside in ((16, []), (5, [other])):
            results = decode([*beside, *parts], page_size, **options)[len(beside) :]
            assert torch.equal(torch.cat([x for x, _ in results]), out)
            assert torch.equal(torch.cat([x for _, x in results], 1), lse)


def test_tiles_depend_on_nothing_that_others_could_change(monkeypatch):
    """Tiles for a GPU are chosen by the model's sizes alone: the parameters name no others."""
    assert paged._tile.__annotations__.keys() == {"group", "bytes_", "headdim", "return"}
    monkeypatch.setattr(paged, "EMULATED", False)
    assert {paged._tile(group, 2, 128).BLOCK_M for group in (1, 7, 16)} == {16}


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("append", (1, 5))
def test_new_keys_are_written_behind_the_old_ones_and_nowhere_else(append):
    of = sequences(((1, 5), (3, 100), (0, 17), (2, 7)))
    call, rows = in_pages(of, append=append)
    before = {name: call[name].flatten(0, 1).clone() for name in ("k", "v")}
    got = results(of, **call, causal=True, num_splits=2)
    for name, pool in before.items():
        for own, s in zip(rows, of, strict=True):
            pool[own[len(own) - append :]] = getattr(s, name)[len(own) - append :]
        torch.testing.assert_close(call[name].flatten(0, 1), pool, rtol=0, atol=0, equal_nan=True)
    check_bits(got, decode(of, causal=True, num_splits=2))


@pytest.mark.parametrize("dim", (0, 1, 2), ids=("pages", "rows", "heads"))
@pytest.mark.parametrize("append", (0, 2))
def test_offsets_in_a_pool_have_64_bits(dim, append):
    """Pages, rows or heads lie up to 2^32 elements apart."""
    of = sequences(((2, 40), (1, 33)))
    call, _ = in_pages(of, append=append)
    far = {name: spread(call[name], dim) for name in ("k", "v")}
    check_bits(results(of, **call | far), results(of, **call))


def test_page_numbers_have_32_bits():
    of = sequences(((2, 40), (1, 3)))
    call, _ = in_pages(of, page_size=1)
    far = {
        name: torch.cat([torch.zeros_like(call[name][:1]).expand(2**16, -1, -1, -1), call[name]]) for name in ("k", "v")
    }
    check_bits(results(of, **call | far | dict(block_table=call["block_table"] + 2**16)), results(of, **call))


def check_bits(got, expected):
    for one, other in zip(got, expected, strict=True):
        for x, y in zip(one, other, strict=True):
            assert torch.equal(x, y)


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not EMULATED, reason="only emulated kernels are traced")
def test_no_splits_race():
    """Traced, no program touches what another one writes. The parts of rows of nobody are read, as
    nothing writes them, and no result depends on them.
    """
    with tracing(seed=1) as traced:
        decode(sequences(((1, 5), (3, 100), (0, 17))), causal=True, num_splits=3, append=0)
    assert traced.launches == 2 and traced.findings == []
    assert {finding.tensor for finding in traced.unwritten} <= {"out_parts_ptr", "lse_parts_ptr"}


@on_a_gpu
def test_a_graph_follows_lengths_and_tables():
    """A captured call reads lengths and tables when it is replayed."""
    of, others = (sequences(lengths) for lengths in (((1, 70), (3, 100)), ((3, 66), (1, 99))))  # as many pages
    call, other = (in_pages(each)[0] | dict(max_seqlen_q=3, max_seqlen_k=100) for each in (of, others))
    PagedDecode().forward(**call, num_splits=3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = PagedDecode().forward(**call, num_splits=3)
    for each, name in ((other, "k"), (other, "v"), (other, "q"), (other, "cu_seqlens_q"), (other, "seqused_k")):
        call[name].copy_(each[name])
    call["block_table"].copy_(other["block_table"])
    graph.replay()
    lengths = [3, 1]
    got = list(zip(out[:4].split(lengths), lse[:, :4].split(lengths, 1), strict=True))
    check_bits(got, results(others, **other, num_splits=3))


def paged_call(**changed):
    """Return the arguments of a small call in float16, with some changed."""
    call, _ = in_pages(sequences(((1, 5), (2, 20))))
    return call | {name: change(call.get(name)) for name, change in changed.items()}


REFUSED = {
    "q_of_4_dimensions": (dict(q=lambda x: x[None]), r"q has shape .*: should be \(total_q, nheads, headdim\)"),
    "k_of_3_dimensions": (dict(k=lambda x: x[0]), r"k has shape .*: should be \(pages, page_size, nheads_k, headdim\)"),
    "v_of_other_pages": (dict(v=lambda x: x[1:]), "v the pages, page_size and nheads_k of k"),
    "k_of_another_headdim": (dict(k=lambda x: x[..., :8]), "k should have q's headdim"),
    "headdim_257": (dict(v=lambda x: x[..., :1].expand(-1, -1, -1, 257).contiguous()), "headdim is 257: .* of v"),
    "nheads_no_multiple": (dict(q=lambda x: x[:, :3]), "nheads is 3: should be a multiple of nheads_k, which is 2"),
    "mixed_dtypes": (dict(k=lambda x: x.float()), "should be one dtype"),
    "strided_pool": (
        dict(k=lambda x: x.transpose(1, 3).contiguous().transpose(1, 3)), "k has strides .*: should have a last stride of 1"),
    "table_of_int64": (dict(block_table=lambda x: x.long()), "block_table is .*torch.int64.*: should be .*torch.int32"),
    "table_of_1_dimension": (dict(block_table=lambda x: x[0]), r"block_table has shape .*should be \(batch, most_pages\)"),
    "lengths_of_another_batch": (dict(seqused_k=lambda x: x[:1]), r"seqused_k is \(1,\).*: should be \(2,\)"),
    "queries_of_another_batch": (dict(cu_seqlens_q=lambda x: x[:2]), r"cu_seqlens_q is \(2,\).*: should be \(3,\)"),
    "table_elsewhere": (dict(block_table=lambda x: x.to("meta")), "block_table is .* on meta"),
    "k_new_alone": (dict(k_new=lambda _: torch.zeros(2, 1, 2, 16).half()), "k_new and v_new should both be given"),
    "no_splits": (dict(num_splits=lambda _: 0), "num_splits is 0: should be an int of at least 1"),
    "a_negative_length": (dict(max_seqlen_q=lambda _: -1), "max_seqlen_q is -1: should be an int of at least 0"),
    "a_window_of_1": (dict(window=lambda _: 3), "window is 3"),
    "a_cap_of_0": (dict(softcap=lambda _: 0.0), "softcap is 0.0"),
    "sinks_of_3_heads": (dict(sinks=lambda _: torch.zeros(3, device=DEVICE)), r"sinks is \(3,\)"),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "words"), REFUSED.values(), ids=REFUSED)
def test_wrong_arguments_are_refused(changed, words):
    with pytest.raises(ValueError, match=words):
        PagedDecode().forward(**paged_call(**changed))


@pytest.mark.parametrize(
    "changed",
    (dict(), dict(seqused_k=torch.zeros_like), dict(max_seqlen_q=lambda _: 40)),
    ids=("as_is", "empty", "long"),
)
def test_unusual_arguments_are_taken(changed):
    out, lse = PagedDecode().forward(**paged_call(**changed))
    assert torch.isfinite(out[:3]).all()
    assert (lse[:, :3] == -INF).all() == ("seqused_k" in changed)
