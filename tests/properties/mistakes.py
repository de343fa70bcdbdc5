"""Implementations with one mistake each, and the law that each breaks, for tests of messages."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import torch

from flash_attest.impls import Implementation, Supports
from flash_attest.properties import (
    test_backward,
    test_causal,
    test_forward,
    test_memory,
    test_races,
    test_softcap_and_sinks,
    test_windows,
)
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.law import Law
from tests.impls.published import over_sequences

PREFIX = test_causal.test_query_sees_exactly_its_prefix.law
OUT = test_forward.test_out_matches_the_definition.law
GRADIENTS = test_backward.test_gradients_match_the_definition.law
LSE = test_forward.test_lse_matches_the_definition.law
HELD_BEFORE = test_memory.test_what_memory_held_before_does_not_matter.law
UNCHANGED = test_memory.test_inputs_come_back_unchanged.law
REPEATS = test_races.test_repeats_agree.law
# An intermittent failure is not shrunk, so its case is the one that was drawn. Only the seed may
# vary.
OUT_AT_65 = replace(OUT, draws=Draws.of(
    seqlen_q=(65, 65), regime="spread", where=lambda case: case.batch * case.nheads == 1
))  # fmt: skip


def attention(q, k, v, seen=None):
    """Return out (b, sq, h, d), lse (b, h, sq) and P, over the visible keys."""
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if seen is not None:
        s = s.masked_fill(~seen, -torch.inf)
    p = s.softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", p, v), s.logsumexp(-1), p


def one_key_short(q, k, v, *, causal=False):
    """Hide the own key of the last query, if that query is in a partial tile of 64."""
    n = q.shape[1]
    seen = torch.ones(n, n, dtype=torch.bool).tril(0 if causal else n)
    if causal and n > 64 and n % 64:
        seen[-1, -1] = False
    return attention(q, k, v, seen)[:2]


def plain(q, k, v):
    return attention(q, k, v)[:2]


def delta_too_small(dout, q, k, v, out, lse):
    """Compute dS = P (dP - 0.9 delta)."""
    p, scale = attention(q, k, v)[2], q.shape[-1] ** -0.5
    dp = torch.einsum("bihd,bjhd->bhij", dout, v)
    delta = (dout * out).sum(-1).transpose(1, 2)[..., None]
    ds = p * (dp - 0.9 * delta) * scale
    dq, dk = torch.einsum("bhij,bjhd->bihd", ds, k), torch.einsum("bhij,bihd->bjhd", ds, q)
    return dq, dk, torch.einsum("bhij,bihd->bjhd", p, dout)


def last_column_not_written(q, k, v):
    """Do not write the last column if headdim is not a multiple of 8."""
    out, lse = plain(q, k, v)
    fresh = torch.empty_like(out)
    columns = out.shape[-1] - (out.shape[-1] % 8 != 0)
    fresh[..., :columns] = out[..., :columns]
    return fresh, lse


def last_row_off(q, k, v):
    out, lse = plain(q, k, v)
    return torch.cat([out[:, :-1], out[:, -1:] + 0.5], dim=1), lse


def wrong_in_one_of_41(q, k, v, calls=Counter()):  # noqa: B006
    """Return a wrong result in the last of 40 repeats. Calls are counted for each q separately."""
    calls[q.shape, q.sum().item()] += 1
    return (plain if calls[q.shape, q.sum().item()] % 41 else last_row_off)(q, k, v)


def wrong_once(q, k, v, calls=itertools.count()):  # noqa: B008
    """Return a wrong result in the third call at length 65.

    The contract check does not try that length. The number of later calls varies.
    """
    return (last_row_off if q.shape[1] == 65 and next(calls) == 2 else plain)(q, k, v)


def no_kernel_for_long_keys(q, k, v):
    if k.shape[1] > 32 and k.shape[1] % 32:
        raise RuntimeError("CUDA error: invalid configuration argument\nCompile with TORCH_USE_CUDA_DSA")
    return plain(q, k, v)


def scales_q_in_place(q, k, v):
    """Scale q in place if the last tile of 16 is partial."""
    if q.shape[1] % 16:
        q.mul_(0.5)
        return plain(2 * q, k, v)
    return plain(q, k, v)


def lse_in_base_2(q, k, v):
    out, lse = plain(q, k, v)
    return out, lse / torch.log(torch.tensor(2.0))


def two_defects(q, k, v, *, softmax_scale=None):
    """Ignore the sign of the scale, and change the last row of a partial tile."""
    default = q.shape[-1] ** -0.5
    scale = default if softmax_scale is None else abs(softmax_scale)
    return (last_row_off if q.shape[1] > 64 and q.shape[1] % 64 else plain)(q * (scale / default), k, v)


def dv_doubled(dout, q, k, v, out, lse):
    """Add P^T dout to dv twice."""
    p, scale = attention(q, k, v)[2], q.shape[-1] ** -0.5
    ds = p * (torch.einsum("bihd,bjhd->bhij", dout, v) - (dout * out).sum(-1).transpose(1, 2)[..., None]) * scale
    dq, dk = torch.einsum("bhij,bjhd->bihd", ds, k), torch.einsum("bhij,bihd->bjhd", ds, q)
    return dq, dk, 2 * torch.einsum("bhij,bihd->bjhd", p, dout)


def sum_as_lse(q, k, v):
    """Return the row sum as lse, except for the lengths that the contract check tries."""
    out, lse, _ = attention(q, k, v)
    m = (torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5).amax(-1)
    return out, lse if q.shape[1] % 32 == 0 else (lse - m).exp()


def window_one_key_longer(q, k, v, *, window=None):
    """See one key too many on the left, from a window of 3 keys on."""
    ahead = torch.arange(k.shape[1]) - torch.arange(q.shape[1])[:, None]
    left = torch.inf if window is None else window[0] + (window[0] >= 3)
    return attention(q, k, v, ahead >= -left)[:2]


def cap_before_the_scale(q, k, v, *, softcap=None):
    """Apply the softcap to q k, and the scale to the result."""
    s = torch.einsum("bihd,bjhd->bhij", q, k)
    s = (s if softcap is None else softcap * torch.tanh(s / softcap)) * q.shape[-1] ** -0.5
    return torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v), s.logsumexp(-1)


def sink_of_the_next_head(q, k, v, *, sinks=None):
    """Give each head the sink of the next one."""
    out, lse = plain(q, k, v)
    if sinks is None:
        return out, lse
    with_sink = torch.logaddexp(lse, sinks.roll(-1)[:, None])
    return out * (lse - with_sink).exp().transpose(1, 2)[..., None], with_sink


def packed_mask_of_the_longest(q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal):
    """Align the mask of every sequence by the lengths of the longest one."""
    starts = cu_seqlens_k.tolist()
    return over_sequences(
        q, cu_seqlens_q.tolist(), lambda n: [x[starts[n] : starts[n + 1]] for x in (k, v)],
        causal=causal, offset=max_seqlen_k - max_seqlen_q,
    )  # fmt: skip


def pages_as_if_in_order(q, k, v, *, cu_seqlens_q, max_seqlen_q, block_table, seqused_k, max_seqlen_k, causal):
    """Read the pages that follow the first one, whatever the table says."""
    lengths, size = seqused_k.tolist(), k.shape[1]

    def keys(n):
        rows = (int(block_table[n, 0]) * size + torch.arange(lengths[n])) % (len(k) * size)
        return [x.flatten(0, 1)[rows] for x in (k, v)]

    return over_sequences(q, cu_seqlens_q.tolist(), keys, causal=causal)


def last_split_left_out(q, k, v, *, num_splits):
    """Leave out the keys of the last split."""
    n = k.shape[1]
    size = -(-n // num_splits)
    kept = n if size == n else (n - 1) // size * size
    return plain(q, k[:, :kept], v[:, :kept])


def implementation(forward, name: str = "", supports=None, **changed) -> Implementation:
    least = dict(dtypes={torch.float32}, headdims=range(1, 65))
    return Implementation(
        name=name or forward.__name__, forward=forward, supports=Supports(**least | (supports or {})),
        **(dict(lse="natural", tile=(64, 64)) | changed),
    )  # fmt: skip


# name of the snapshot -> law, implementation
FAILURES: dict[str, tuple[Law, Implementation]] = {
    "causal_mask_one_key_short": (PREFIX, implementation(one_key_short, supports=dict(causal="optional"))),
    "delta_too_small": (GRADIENTS, implementation(plain, "delta_too_small", backward=delta_too_small)),
    "column_never_written": (HELD_BEFORE, implementation(last_column_not_written)),
    "exception": (OUT, implementation(no_kernel_for_long_keys)),
    "input_modified": (UNCHANGED, implementation(scales_q_in_place)),
    "race": (REPEATS, implementation(wrong_in_one_of_41)),
    "two_defects": (OUT, implementation(two_defects, supports=dict(softmax_scale=True))),
    "dv_doubled": (GRADIENTS, implementation(plain, "dv_doubled", backward=dv_doubled)),
    "sum_as_lse": (LSE, implementation(sum_as_lse)),
    "flaky": (OUT_AT_65, implementation(wrong_once, supports=dict(headdims={1}))),
}
IN_A_FORM = dict(dtypes={torch.float32}, headdims=range(1, 129), causal="optional", cross=True)
OF_FEATURES: dict[str, tuple[Law, Implementation]] = {
    "mask_aligned_by_max_seqlen": (
        PREFIX,
        implementation(packed_mask_of_the_longest, supports=dict(form="varlen", **IN_A_FORM)),
    ),
    "pages_as_if_in_order": (
        OUT,
        implementation(pages_as_if_in_order, supports=dict(form="paged", page_sizes={4, 16}, **IN_A_FORM)),
    ),
    "last_split_left_out": (
        OUT,
        implementation(last_split_left_out, supports=dict(splits=range(1, 65), cross=True)),
    ),
    "window_one_key_longer": (
        test_windows.test_query_sees_exactly_its_window.law,
        implementation(window_one_key_longer, supports=dict(window={"left"})),
    ),
    "cap_before_the_scale": (OUT, implementation(cap_before_the_scale, supports=dict(softcap=True))),
    "sink_of_the_next_head": (
        test_softcap_and_sinks.test_sink_takes_its_share.law,
        implementation(sink_of_the_next_head, supports=dict(sinks=True)),
    ),
}
