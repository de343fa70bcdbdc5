"""Packed sequences in the Triton kernels: lengths that differ, and invalid arguments."""

import pytest
import torch

from flash_attest.impls.triton.device import EMULATED, lacking

if lacking():
    pytest.skip(lacking(), allow_module_level=True)

from flash_attest.impls.triton.attention import FlashAttention2
from flash_attest.impls.triton.tuning import Kernel
from flash_attest.impls.triton.varlen import FlashAttention2Varlen
from tests.impls.triton.calls import DEVICE, on_a_gpu, randn

HALF, NAN = torch.float16, float("nan")
LENGTHS_Q, LENGTHS_K = [0, 5, 40, 1, 0, 70], [3, 9, 0, 70, 0, 35]
SLACK = 3
OPTIONS = {
    "plain": dict(),
    "all": dict(causal=True, window=(20, None), softcap=3.0, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0], device=DEVICE)),
    "window_beyond_32_bits": dict(window=(2**40, 2)),
}


def starts(lengths):
    return torch.tensor([0, *lengths], device=DEVICE).cumsum(0).int()


def packed(lengths_q=LENGTHS_Q, lengths_k=LENGTHS_K, slack=SLACK):
    """Return q, k, v, dout, whose rows of slack are NaN, dlse, and the lengths as keywords."""
    total_q, total_k = sum(lengths_q) + slack, sum(lengths_k) + slack
    q, dout = (randn(total_q, 4, 16, dtype=HALF, seed=seed) for seed in (0, 1))
    k, v = (randn(total_k, 2, 16, dtype=HALF, seed=seed) for seed in (2, 3))
    for x in (q, k, v, dout):
        x[len(x) - slack :] = NAN
    lengths = dict(cu_seqlens_q=starts(lengths_q), cu_seqlens_k=starts(lengths_k))
    longest = dict(max_seqlen_q=max(lengths_q, default=0) + slack, max_seqlen_k=max(lengths_k, default=0) + slack)
    return (q, k, v, dout, randn(4, total_q, seed=4)), lengths | longest


@pytest.mark.parametrize("atomic", (False, True), ids=("", "atomic"))
@pytest.mark.parametrize("options", OPTIONS)
def test_each_sequence_is_as_in_a_call_of_its_own(options, atomic):
    """The laws judge sequences of one length; here all of a call are compared, of many lengths."""
    options, way = OPTIONS[options], FlashAttention2(atomic=atomic)
    (q, k, v, dout, dlse), lengths = packed()
    varlen = FlashAttention2Varlen(way)
    out, lse = varlen.forward(q, k, v, **lengths, **options)
    dq, dk, dv, *dsink = varlen.backward(dout, q, k, v, out, lse, dlse=dlse, **lengths, **options)

    sinks = [torch.zeros_like(x) for x in dsink]
    i = j = 0
    for seqlen_q, seqlen_k in zip(LENGTHS_Q, LENGTHS_K, strict=True):
        at_q, at_k = slice(i, i := i + seqlen_q), slice(j, j := j + seqlen_k)
        one = [x[at][None] for x, at in ((q, at_q), (k, at_k), (v, at_k))]
        own_out, own_lse = way.forward(*one, **options)
        own = way.backward(dout[at_q][None], *one, own_out, own_lse, dlse=dlse[None, :, at_q], **options)
        got = out[at_q], lse[:, at_q], dq[at_q], dk[at_k], dv[at_k]
        for name, x, want in zip(("out", "lse", "dq", "dk", "dv"), got, (own_out, own_lse, *own), strict=False):
            torch.testing.assert_close(x, want[0], rtol=2e-3, atol=2e-3, msg=lambda text, name=name: f"{name}: {text}")
        sinks = [x + y for x, y in zip(sinks, own[3:], strict=True)]
    for x, want in zip(dsink, sinks, strict=True):
        torch.testing.assert_close(x, want)


def test_no_sequences_have_no_results():
    (q, k, v, dout, _), lengths = packed([], [])
    sinks = torch.zeros(4, device=DEVICE)
    way = FlashAttention2Varlen(FlashAttention2())
    out, lse = way.forward(q, k, v, sinks=sinks, **lengths)
    dq, dk, dv, dsink = way.backward(dout, q, k, v, out, lse, sinks=sinks, **lengths)
    shapes = [x.shape for x in (out, lse, dq, dk, dv, dsink)]
    assert shapes == [q.shape, (4, SLACK), q.shape, k.shape, v.shape, (4,)] and torch.equal(dsink, sinks)


# --- invalid arguments ----------------------------------------------------------------------------


def ints(*numbers, dtype=torch.int32, device=DEVICE):
    return torch.tensor(numbers, dtype=dtype, device=device)


# Of two sequences with 2 and 3 queries and 4 and 3 keys.
REFUSED = {
    "q_of_4_dimensions": (
        dict(q=torch.zeros(1, 5, 4, 8)), r"q has shape \(1, 5, 4, 8\): should be \(total, nheads, headdim\)"),
    "q_no_tensor": (dict(q=None), "q is a NoneType: should be a tensor"),
    "headdim_of_k": (dict(k=torch.zeros(7, 2, 4)), r"k \(7, 2, 4\), v \(7, 2, 8\): k should have q's headdim"),
    "rows_of_v": (dict(v=torch.zeros(6, 2, 8)), r"v \(6, 2, 8\): .* v the rows and heads of k"),
    "nheads_no_multiple": (dict(q=torch.zeros(5, 3, 8)), "nheads is 3: should be a multiple of nheads_k, which is 2"),
    "long_lengths": (
        dict(cu_seqlens_q=ints(0, 2, 5, dtype=torch.int64)),
        rf"cu_seqlens_q is \(3,\) torch.int64 on {DEVICE}.*: should be \(batch \+ 1\) torch.int32 on {DEVICE}"),
    "lengths_elsewhere": (
        dict(cu_seqlens_k=ints(0, 4, 7).to("meta")), r"cu_seqlens_k is \(3,\) torch.int32 on meta: should be"),
    "lengths_of_2_dimensions": (dict(cu_seqlens_q=ints(0, 2, 5)[None]), r"cu_seqlens_q is \(1, 3\)"),
    "no_lengths": (dict(cu_seqlens_q=ints()), r"cu_seqlens_q is \(0,\)"),
    "a_list": (dict(cu_seqlens_k=[0, 4, 7]), "cu_seqlens_k is a list: should be a tensor"),
    "fewer_sequences": (dict(cu_seqlens_k=ints(0, 7)), "cu_seqlens_q has 3 numbers, cu_seqlens_k 2: should be as many"),
    "longest_a_tensor": (dict(max_seqlen_q=ints(3)), r"max_seqlen_q is tensor\(\[3\].*: should be an int of at least 0"),
    "longest_negative": (dict(max_seqlen_k=-1), "max_seqlen_k is -1: should be an int of at least 0"),
    "longest_too_large": (dict(max_seqlen_k=2**30 + 1), "seqlen_k is 1073741825: should be at most 1073741824"),
    "window_a_number": (dict(window=3), "window is 3: should be"),
}  # fmt: skip
# Reading these numbers would wait for a GPU.
REFUSED_IN_THE_EMULATOR = {
    "longest_too_small": (dict(max_seqlen_q=2), "max_seqlen_q is 2: should be at least 3, the longest of cu_seqlens_q"),
    "decreasing": (dict(cu_seqlens_k=ints(0, 4, 3)), r"cu_seqlens_k is \[0, 4, 3\]: should begin with 0 and never decrease"),
    "not_from_0_on": (dict(cu_seqlens_k=ints(1, 4, 7)), r"cu_seqlens_k is \[1, 4, 7\]: should begin with 0"),
    "beyond_the_rows": (dict(cu_seqlens_q=ints(0, 2, 6)), "cu_seqlens_q ends with 6: should be at most 5, the rows of q"),
}  # fmt: skip


@pytest.fixture
def no_launch(monkeypatch):
    def launched(self, *args, **arguments):
        raise AssertionError(f"{self.name} was launched before the arguments were checked")

    monkeypatch.setattr(Kernel, "launch", launched)


def call_with(**instead):
    given = dict(q=torch.zeros(5, 4, 8), k=torch.zeros(7, 2, 8), v=torch.zeros(7, 2, 8)) | dict(
        cu_seqlens_q=ints(0, 2, 5), cu_seqlens_k=ints(0, 4, 7), max_seqlen_q=3, max_seqlen_k=4
    )
    given = {name: x.to(DEVICE) if name in "qkv" and x is not None else x for name, x in (given | instead).items()}
    FlashAttention2Varlen(FlashAttention2()).forward(**given)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_before_any_launch_and_names_the_value(name, no_launch):
    instead, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        call_with(**instead)


@pytest.mark.skipif(not EMULATED, reason="a GPU is not waited for")
@pytest.mark.parametrize("name", REFUSED_IN_THE_EMULATOR)
def test_the_emulator_refuses_wrong_numbers(name, no_launch):
    instead, words = REFUSED_IN_THE_EMULATOR[name]
    with pytest.raises(ValueError, match=words):
        call_with(**instead)


def test_the_unchanged_call_is_launched(no_launch):
    """The test shows that the changed argument is the only invalid one."""
    with pytest.raises(AssertionError, match="forward was launched"):
        call_with()


def test_backward_refuses_lse_of_another_shape():
    (q, k, v, dout, _), lengths = packed()
    lse = torch.zeros(1, 4, len(q), device=DEVICE)
    with pytest.raises(ValueError, match=rf"lse is \(1, 4, {len(q)}\) .*: should be \(4, {len(q)}\)"):
        FlashAttention2Varlen(FlashAttention2()).backward(dout, q, k, v, dout, lse, **lengths)


# --- 64-bit offsets -------------------------------------------------------------------------------


@on_a_gpu
@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.mem_get_info()[0] < 40 * 2**30, reason="needs 40 GiB")
def test_lse_of_more_than_2_31_elements():
    """Each head has 2^26 rows, of which most are slack, so heads from 32 on lie beyond 2^31."""
    heads, rows, length = 34, 2**26, 64
    q, dout = (torch.zeros(rows, heads, 1, dtype=HALF, device=DEVICE) for _ in range(2))
    k, v = (randn(length, heads, 1, dtype=HALF, seed=seed) for seed in (2, 3))
    q[:length], dout[:length] = (randn(length, heads, 1, dtype=HALF, seed=seed) for seed in (0, 1))
    lengths = dict(
        cu_seqlens_q=starts([length]), cu_seqlens_k=starts([length]), max_seqlen_q=length, max_seqlen_k=length
    )
    way = FlashAttention2Varlen(FlashAttention2())
    results = []
    for last in (rows, length):
        own_q, own_dout = q[:last], dout[:last]
        out, lse = way.forward(own_q, k, v, **lengths)
        dq, dk, dv = way.backward(own_dout, own_q, k, v, out, lse, **lengths)
        results.append([out[:length], lse[:, :length], dq[:length], dk, dv])
    for name, x, want in zip(("out", "lse", "dq", "dk", "dv"), *results, strict=True):
        assert torch.equal(x, want), name
