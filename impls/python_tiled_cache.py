"""python_tiled for a cache with a slot for each sequence.

A slot is a page as long as its capacity, and a sequence has one. So append, num_splits and the
merge are those of python_tiled_paged.py.
"""

from dataclasses import replace

from flash_attest.impls.python_tiled_paged import IMPL as PAGED
from flash_attest.impls.python_tiled_paged import append, decode
from flash_attest.impls.python_tiled_varlen import Rows, check, check_tables, scoring_of


def forward(
    q, k, v, *, cache_seqlens, cache_batch_idx, k_new=None, v_new=None,
    num_splits=1, causal=False, window=None, softmax_scale=None, softcap=None, sinks=None,
):  # fmt: skip
    """(b, sq, h, d), (slots, capacity, hk, d or dv) -> out (b, sq, h, dv), lse (b, h, sq).

    cache_seqlens (b), int32: the number of keys of each sequence in the cache. cache_batch_idx (b),
    int32: its slot. k_new, v_new (b, new, hk, d or dv) are written behind them, and attended to.
    Raises ValueError for a call outside of `supports`.
    """
    check("python_tiled_cache", q, k, v, window, softcap, sinks)
    check_tables(q, q.shape[:1], cache_seqlens=cache_seqlens, cache_batch_idx=cache_batch_idx)
    batch, seqlen_q = q.shape[:2]
    slots = cache_batch_idx.unsqueeze(1)
    append(k, v, slots, cache_seqlens, k_new, v_new)
    lengths = (cache_seqlens + (0 if k_new is None else k_new.shape[1])).tolist()
    queries = Rows([n * seqlen_q for n in range(batch)], [seqlen_q] * batch)
    scoring = scoring_of(q, causal, window, softmax_scale, softcap)
    out, lse = decode(q.flatten(0, 1), k, v, queries, seqlen_q, slots, lengths, scoring, sinks, num_splits)
    return out.unflatten(0, (batch, seqlen_q)), lse.unflatten(1, (batch, seqlen_q)).transpose(0, 1)


IMPL = replace(
    PAGED,
    name="python_tiled_cache",
    forward=forward,
    supports=replace(PAGED.supports, form="cache", page_sizes=()),
)
