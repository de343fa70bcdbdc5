"""python_tiled for padded sequences: each has a row of the batch, of which it uses the first rows.

The kernels are those of packed sequences (python_tiled_varlen.py). Sequence n begins at row
n * seqlen of the flattened buffer, and has seqused[n] rows.
"""

from dataclasses import replace

from flash_attest.impls.python_tiled_varlen import (
    IMPL as VARLEN,
)
from flash_attest.impls.python_tiled_varlen import (
    Rows,
    backward_of,
    check,
    check_tables,
    forward_of,
    scoring_of,
)


def forward(
    q, k, v, *, seqused_q, seqused_k,
    causal=False, window=None, softmax_scale=None, softcap=None, sinks=None,
):  # fmt: skip
    """(b, most_q, h, d), (b, most_k, hk, d or dv) -> out (b, most_q, h, dv), lse (b, h, most_q).

    seqused_q, seqused_k (b), int32: how many rows each sequence uses. The others get 0. Raises
    ValueError for a call outside of `supports`.
    """
    check("python_tiled_padded", q, k, v, window, softcap, sinks)
    check_tables(q, q.shape[:1], seqused_q=seqused_q, seqused_k=seqused_k)
    queries, keys = rows_of(q, seqused_q), rows_of(k, seqused_k)
    scoring = scoring_of(q, causal, window, softmax_scale, softcap)
    out, lse = forward_of(*map(packed, (q, k, v)), queries, keys, q.shape[1], scoring, sinks)
    return padded(out, q), padded(lse.T, q).transpose(1, 2)


def backward(
    dout, q, k, v, out, lse, *, seqused_q, seqused_k,
    causal=False, window=None, softmax_scale=None, softcap=None, sinks=None, dlse=None,
):  # fmt: skip
    """dout, out (b, most_q, h, dv); lse, dlse (b, h, most_q) -> dq, dk, dv[, dsink].

    Rows that no sequence uses get 0. Raises ValueError for a call outside of `supports`.
    """
    check("python_tiled_padded", q, k, v, window, softcap, sinks)
    check_tables(q, q.shape[:1], seqused_q=seqused_q, seqused_k=seqused_k)
    queries, keys = rows_of(q, seqused_q), rows_of(k, seqused_k)
    scoring = scoring_of(q, causal, window, softmax_scale, softcap)
    rows_of_lse = [None if x is None else packed(x.transpose(1, 2)).T for x in (lse, dlse)]
    dq, dk, dv, *dsink = backward_of(
        *map(packed, (dout, q, k, v, out)), rows_of_lse[0], queries, keys, k.shape[1], scoring, sinks, rows_of_lse[1]
    )
    return padded(dq, q), padded(dk, k), padded(dv, v), *dsink


def rows_of(x, seqused):
    """Return the Rows of sequences in x (b, most, h, d)."""
    batch, most = x.shape[:2]
    return Rows([n * most for n in range(batch)], seqused.tolist())


def packed(x):
    """(b, most, ...) -> (b * most, ...)."""
    return x.flatten(0, 1)


def padded(x, like):
    """(b * most, ...) -> (b, most, ...), with the sizes of like (b, most, ...)."""
    return x.unflatten(0, like.shape[:2])


IMPL = replace(
    VARLEN,
    name="python_tiled_padded",
    forward=forward,
    backward=backward,
    supports=replace(VARLEN.supports, form="padded"),
)
