"""Attention over listed keys in tensor operations, written to be read, as in sparse attention.

Each query has a list of the keys that it sees (DeepSeek-V3.2: the topk keys of an indexer). Keys
are gathered in tiles of BLOCK_N slots of the lists, so no score of another key is computed. The
query heads that share a key head share its list, and are the rows of a product. The letters are
those of python_tiled.py; g is the number of these heads, and n the number of slots in a tile.

Precision: as in python_tiled.py.
"""

import torch

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.contract.arguments import check_like

BLOCK_N = 16  # slots in one tile
HEADDIMS_V = {(1, 3), (3, 1), (64, 16), (192, 128)}  # (headdim, headdim_v); all pairs are right
INF = float("inf")


def forward(q, k, v, *, causal=False, softmax_scale=None, kv_indices=None):
    """(b, sq, h, d), (b, sk, hk, d), (b, sk, hk, dv) -> out (b, sq, h, dv), lse (b, h, sq) float32.

    kv_indices (b, sq, hk, topk): the keys of each query, then -1. None: all keys. Raises ValueError
    for a call outside of `supports`.
    """
    lists = checked(q, k, v, kv_indices)
    q_rows = q.float().unflatten(2, (k.shape[2], -1))  #                       (b, sq, hk, g, d)
    scale = q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale

    m = q_rows.new_full((*q_rows.shape[:4], 1), -INF)
    l = torch.zeros_like(m)
    acc = q_rows.new_zeros(*q_rows.shape[:4], v.shape[3])
    for t in range(0, lists.shape[3], BLOCK_N):
        keys = lists[..., t : t + BLOCK_N]
        s = scores(q_rows, gather(k, keys), keys, k.shape[1], scale, causal)
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))  #                  m = max(m, rowmax(S))
        m_safe = m_new.masked_fill(m_new == -INF, 0.0)  #                      no visible key yet: exp(-inf - 0) = 0
        p = torch.exp(s - m_safe)  #                                           P = exp(S - m)
        alpha = torch.exp(m - m_safe)  #                                       rescales the earlier tiles
        l = alpha * l + p.sum(-1, keepdim=True)  #                             l = alpha l + rowsum(P)
        acc = alpha * acc + as_operand(p, q) @ gather(v, keys)  #              O = alpha O + P V
        m = m_new

    out = torch.where(l == 0, 0.0, acc / l)  #                                 O / l; a dead row gives 0
    lse = m + torch.log(l)  #                                                  L = m + log l; dead: -inf
    return out.flatten(2, 3).to(q.dtype), lse.flatten(2).transpose(1, 2).contiguous()


def backward(dout, q, k, v, out, lse, *, causal=False, softmax_scale=None, kv_indices=None):
    """dout, out (b, sq, h, dv); lse (b, h, sq) -> dq, dk, dv.

    The gradients of a key are summed over the queries that list it, where a kernel needs atomics.
    Raises ValueError for a call outside of `supports`.
    """
    lists = checked(q, k, v, kv_indices)
    q_rows, do_rows, out_rows = (x.float().unflatten(2, (k.shape[2], -1)) for x in (q, dout, out))
    scale = q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale

    delta = (do_rows * out_rows).sum(-1, keepdim=True)  #                      delta = rowsum(dO * O)
    lse = lse.masked_fill(lse == -INF, INF)  #                                 so that P = exp(-inf - inf) = 0
    lse = lse.transpose(1, 2).unflatten(2, (k.shape[2], -1)).unsqueeze(-1)
    dq, dk, dv = torch.zeros_like(q_rows), zeros(k), zeros(v)
    for t in range(0, lists.shape[3], BLOCK_N):
        keys = lists[..., t : t + BLOCK_N]
        kj, vj = gather(k, keys), gather(v, keys)
        s = scores(q_rows, kj, keys, k.shape[1], scale, causal)  #             recomputed
        p = torch.exp(s - lse)  #                                              P = exp(S - L)
        ds = as_operand(p * (do_rows @ vj.mT - delta), q)  #                   dS = P * (dO V^T - delta)
        dq += ds @ kj  #                                                       dQ = scale dS K: the scale is below
        add_to_keys(dk, keys, ds.mT @ q_rows)  #                               dK = scale dS^T Q
        add_to_keys(dv, keys, as_operand(p, q).mT @ do_rows)  #                dV = P^T dO
    return (dq.flatten(2, 3) * scale).to(q.dtype), (dk * scale).to(k.dtype), dv.to(v.dtype)


def scores(q_rows, kj, keys, seqlen_k, scale, causal):
    """(b, sq, hk, g, d), (b, sq, hk, n, d), (b, sq, hk, n) -> S (b, sq, hk, g, n).

    S is -inf where masked. A slot is masked if it is padding, or if its key comes after the query,
    bottom right.
    """
    s = scale * (q_rows @ kj.mT)
    hidden = keys < 0
    if causal:
        seqlen_q = q_rows.shape[1]
        i = torch.arange(seqlen_q, device=keys.device)[:, None, None]
        hidden = hidden | (keys > i + seqlen_k - seqlen_q)
    return s.masked_fill(hidden.unsqueeze(3), -INF)


def gather(x, keys):
    """(b, sk, hk, d), (b, sq, hk, n) -> (b, sq, hk, n, d) in float32; padding has key 0."""
    batches = torch.arange(x.shape[0], device=x.device)[:, None, None, None]
    heads = torch.arange(x.shape[2], device=x.device)[:, None]
    return x[batches, keys.clamp(min=0), heads].float()


def add_to_keys(x, keys, rows):
    """Add rows (b, sq, hk, n, d) to the listed keys of x (b, sk, hk, d); padding adds 0."""
    batches = torch.arange(x.shape[0], device=x.device)[:, None, None, None].expand_as(keys)
    heads = torch.arange(x.shape[2], device=x.device)[:, None].expand_as(keys)
    x.index_put_((batches, keys.clamp(min=0), heads), rows, accumulate=True)


def zeros(x):
    """Return float32 zeros in the shape of x."""
    return x.new_zeros(x.shape, dtype=torch.float32)


def as_operand(x, q):
    """Round x to q's dtype and return it in float32, as operands of a tensor core are rounded."""
    return x.to(q.dtype).float()


def checked(q, k, v, kv_indices):
    """Return the lists of keys as int64; all keys if there are none.

    Raises ValueError for a call outside of `supports`.
    """
    (batch, seqlen_q, nheads, headdim), (seqlen_k, nheads_k) = q.shape, k.shape[1:3]
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in IMPL.supports.dtypes:
        raise ValueError(f"python_topk: q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: should be one supported dtype")
    if k.shape[:3] != v.shape[:3] or k.shape != (batch, seqlen_k, nheads_k, headdim):
        raise ValueError(f"python_topk: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} do not fit together")
    if headdim not in IMPL.supports.headdims or v.shape[3] not in IMPL.supports.headdims:
        raise ValueError(f"python_topk: headdim={headdim}, headdim_v={v.shape[3]}: should be 1 to 256")
    if nheads_k == 0 or nheads % nheads_k:
        raise ValueError(f"python_topk: nheads={nheads} should be a multiple of nheads_k={nheads_k}")
    if kv_indices is None:
        return torch.arange(seqlen_k, device=q.device).expand(batch, seqlen_q, nheads_k, seqlen_k)
    check_like("kv_indices", kv_indices, (batch, seqlen_q, nheads_k, kv_indices.shape[-1]), torch.int32, q.device)
    return kv_indices.long() if seqlen_k else kv_indices.long()[..., :0]


IMPL = Implementation(
    name="python_topk",
    forward=forward,
    backward=backward,
    devices={"cpu"},  # also correct on a GPU, but slower there than a kernel
    supports=Supports(
        dtypes={torch.float32, torch.float16, torch.bfloat16},
        headdims=range(1, 257),
        causal="optional",
        cross=True,
        gqa=True,
        softmax_scale=True,
        headdims_v=HEADDIMS_V,
        hidden={"indices"},
        shared_kv="optional",
        strides=True,
    ),
    causal_alignment="bottom_right",
    lse="natural",
    empty_rows="zero",
    precision=Precision(probabilities="operand"),
    tile=(1, BLOCK_N),
    share={"cpu": 0.5},
)
