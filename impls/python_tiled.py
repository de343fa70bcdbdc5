"""FlashAttention-2 in tensor operations, written to be read: one line per step, with its formula.

The loops are those of a kernel, over tiles of BLOCK_M queries by BLOCK_N keys. A partial last tile
is padded with zeros when it is loaded, masked when it is used, and cut when it is stored. Tiles
that no query sees are skipped. Only batch and heads are vectorised. The letters are those of the
paper (FA2 Alg. 1 and 2): S scores, P probabilities, m the running row maximum, l the running row
sum. R are the scores before the softcap.

Precision: operands are multiplied in their own dtype and summed in float32. P and dR are rounded to
the operands' dtype before the second product. float32 products rely on torch's default,
torch.backends.cuda.matmul.allow_tf32 = False.
"""

import torch

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.contract.arguments import check_like, check_sinks, check_softcap, check_window

BLOCK_M, BLOCK_N = 16, 16  # queries and keys in one tile; small, so that a case on a CPU has many tiles
HIDDEN_BLOCK = (8, 24)  # queries and keys in one block of block_mask; it need not fit the tiles
HEADDIMS_V = {(1, 3), (3, 1), (64, 16), (16, 64), (72, 130), (192, 128)}  # (headdim, headdim_v); all pairs are right
INF = float("inf")


def forward(
    q, k, v, *,
    causal=False, window=None, bias=None, softmax_scale=None, softcap=None, sinks=None, block_mask=None,
):  # fmt: skip
    """(b, sq, h, d), (b, sk, hk, d), (b, sk, hk, dv) -> out (b, sq, h, dv), lse (b, h, sq) float32.

    FlashAttention-2, Algorithm 1. sinks (h): a sink is a score that joins each row sum, and has no
    value. block_mask (b, h, blocks of queries, blocks of keys): tiles without a visible key are
    skipped. Raises ValueError for a call outside of `supports`.
    """
    check(q, k, v, window, bias, softcap, sinks, block_mask)
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k = k.shape[1]
    scale = headdim**-0.5 if softmax_scale is None else softmax_scale
    kv_head = key_head_of(q, k)
    full_bias = None if bias is None else bias.expand(batch, nheads, seqlen_q, seqlen_k)  # stride 0 where it broadcasts
    left, right = window_of(window, causal)
    sink = q.new_full((nheads,), -INF, dtype=torch.float32) if sinks is None else sinks  # exp(-inf) = 0: no sink

    out = q.new_zeros(batch, seqlen_q, nheads, v.shape[3])
    lse = q.new_zeros(batch, nheads, seqlen_q, dtype=torch.float32)
    for i0 in range(0, seqlen_q, BLOCK_M):
        qi = load_tile(q.transpose(1, 2), i0, BLOCK_M)
        m = sink[:, None, None].expand(batch, nheads, BLOCK_M, 1)  #           the sink is the first score: m = sink
        l = (m > -INF).float()  #                                              l = exp(sink - m)
        acc = qi.new_zeros(batch, nheads, BLOCK_M, v.shape[3])

        first_key = i0 + seqlen_k - seqlen_q - left  # the first key that this tile's first query sees
        last_key = i0 + BLOCK_M + seqlen_k - seqlen_q + right  # one past the last key that this tile's last query sees
        for j0 in range(max(0, first_key) // BLOCK_N * BLOCK_N, min(seqlen_k, last_key), BLOCK_N):
            shown = shown_in_tile(block_mask, i0, j0)
            if shown is not None and not shown.any():
                continue
            kj = load_tile(k.transpose(1, 2), j0, BLOCK_N)[:, kv_head]
            vj = load_tile(v.transpose(1, 2), j0, BLOCK_N)[:, kv_head]
            s, _ = scores(qi, kj, full_bias, shown, i0, j0, seqlen_q, seqlen_k, scale, softcap, left, right)

            m_new = torch.maximum(m, s.amax(-1, keepdim=True))  #              m = max(m, rowmax(S))
            m_safe = m_new.masked_fill(m_new == -INF, 0.0)  #                  no visible key yet: exp(-inf - 0) = 0
            p = torch.exp(s - m_safe)  #                                       P = exp(S - m)
            alpha = torch.exp(m - m_safe)  #                                   rescales the earlier tiles
            l = alpha * l + p.sum(-1, keepdim=True)  #                         l = alpha l + rowsum(P)
            acc = alpha * acc + as_operand(p, q) @ vj  #                       O = alpha O + P V
            m = m_new

        oi = torch.where(l == 0, 0.0, acc / l)  #                              O / l; a dead row has acc = 0 and gives 0
        lse_i = m + torch.log(l)  #                                            L = m + log l; dead: the sink, or -inf
        store_tile(out.transpose(1, 2), i0, oi)
        store_tile(lse.unsqueeze(-1), i0, lse_i)
    return out, lse


def backward(
    dout, q, k, v, out, lse, *,
    causal=False, window=None, bias=None, softmax_scale=None, softcap=None, sinks=None, block_mask=None, dlse=None,
):  # fmt: skip
    """dout, out (b, sq, h, dv); lse, dlse (b, h, sq) -> dq, dk, dv[, dbias][, dsink].

    FlashAttention-2, Algorithm 2. dlse is the gradient with respect to lse. dsink is float32 (h),
    the others are like q, k, v and bias. A boolean bias has no gradient. Raises ValueError for a
    call outside of `supports`.
    """
    check(q, k, v, window, bias, softcap, sinks, block_mask)
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k, nheads_k = k.shape[1:3]
    scale = headdim**-0.5 if softmax_scale is None else softmax_scale  # as in forward
    kv_head = key_head_of(q, k)  # as in forward
    full_bias = None if bias is None else bias.expand(batch, nheads, seqlen_q, seqlen_k)  # as in forward
    left, right = window_of(window, causal)  # as in forward

    delta = (dout.float() * out.float()).sum(-1, keepdim=True)  #              delta = rowsum(dO * O)
    if dlse is not None:
        delta = delta - dlse.transpose(1, 2).unsqueeze(-1)  #                  delta -= dL, as dL / dS = P
    dead = lse == -INF
    lse = lse.masked_fill(dead, INF).unsqueeze(-1)  #                          so that P = exp(-inf - inf) = 0

    dq = q.new_zeros(q.shape, dtype=torch.float32)  # summed over K tiles, so it lives in float32 until the end
    dk, dv = k.new_zeros(k.shape), v.new_zeros(v.shape)
    gives_dbias = bias is not None and bias.dtype != torch.bool
    dbias = bias.new_zeros(bias.shape, dtype=torch.float32) if gives_dbias else None
    dsink = None
    if sinks is not None:
        p_sink = torch.exp(sinks[:, None, None] - lse)  #                      P_sink = exp(sink - L)
        dsink = -(p_sink * delta.transpose(1, 2)).sum((0, 2, 3))  #            dsink = -sum(P_sink * delta): its dP is 0
    for j0 in range(0, seqlen_k, BLOCK_N):
        kj = load_tile(k.transpose(1, 2), j0, BLOCK_N)[:, kv_head]  # once per K tile
        vj = load_tile(v.transpose(1, 2), j0, BLOCK_N)[:, kv_head]  # once per K tile
        dkj = kj.new_zeros(batch, nheads, BLOCK_N, headdim)
        dvj = vj.new_zeros(batch, nheads, BLOCK_N, v.shape[3])

        first_query = j0 - (seqlen_k - seqlen_q) - right  # the first query that sees this tile's first key
        last_query = j0 + BLOCK_N - (seqlen_k - seqlen_q) + left  # one past the last query that sees its last key
        for i0 in range(max(0, first_query) // BLOCK_M * BLOCK_M, min(seqlen_q, last_query), BLOCK_M):
            shown = shown_in_tile(block_mask, i0, j0)  # as in forward
            if shown is not None and not shown.any():
                continue
            qi = load_tile(q.transpose(1, 2), i0, BLOCK_M)  # once per K tile and Q tile
            doi = load_tile(dout.transpose(1, 2), i0, BLOCK_M)
            lse_i = load_tile(lse, i0, BLOCK_M, padding=INF)  #                a padding query has P = 0
            delta_i = load_tile(delta.transpose(1, 2), i0, BLOCK_M)
            s, slope = scores(qi, kj, full_bias, shown, i0, j0, seqlen_q, seqlen_k, scale, softcap, left, right)

            p = torch.exp(s - lse_i)  #                                        P = exp(S - L), S is recomputed
            dvj += as_operand(p, q).mT @ doi  #                                dV = P^T dO
            dp = doi @ vj.mT  #                                                dP = dO V^T
            ds = p * (dp - delta_i)  #                                         dS = P * (dP - delta)
            dr = ds if softcap is None else ds * slope  #                      dR = dS * (1 - tanh(R / softcap)^2)
            add_tile(dq.transpose(1, 2), i0, as_operand(dr, q) @ kj)  #        dQ = scale dR K: the scale is below
            dkj += as_operand(dr, q).mT @ qi  #                                dK = scale dR^T Q
            if dbias is not None:
                add_bias_tile(dbias, i0, j0, ds, seqlen_q, seqlen_k)  #        dbias = dS, summed where it broadcasts

        dkj = dkj * scale  # once per tile, not once per product
        store_tile(dk.transpose(1, 2), j0, sum_query_heads(dkj, nheads_k))
        store_tile(dv.transpose(1, 2), j0, sum_query_heads(dvj, nheads_k))
    dq = (dq * scale).to(q.dtype)
    dbias = dbias.to(bias.dtype) if gives_dbias else None
    return tuple(gradient for gradient in (dq, dk, dv, dbias, dsink) if gradient is not None)


def scores(qi, kj, full_bias, shown, i0, j0, seqlen_q, seqlen_k, scale, softcap, left, right):
    """(b, h, BLOCK_M, d), (b, h, BLOCK_N, d) -> S, -inf where masked, and dS / dR.

    R = scale Q K^T, S = softcap tanh(R / softcap) + bias, each (b, h, BLOCK_M, BLOCK_N). Without a
    softcap S = R + bias, and dS / dR is None. A boolean bias masks where it is False, and so does
    `shown` (b, h, BLOCK_M, BLOCK_N).
    """
    s = scale * (qi @ kj.mT)  # scaled before the maximum is taken: the scale may be negative
    slope = None
    if softcap is not None:
        t = torch.tanh(s / softcap)
        s, slope = softcap * t, 1 - t * t
    if full_bias is not None:
        bias = load_tile(load_tile(full_bias, i0, BLOCK_M).mT, j0, BLOCK_N).mT  # float32: 1 where a boolean is True
        s = s.masked_fill(bias == 0, -INF) if full_bias.dtype == torch.bool else s + bias
    if shown is not None:
        s = s.masked_fill(~shown, -INF)
    j = torch.arange(j0, j0 + BLOCK_N, device=s.device)
    if j0 + BLOCK_N > seqlen_k:  # tail mask: the last tile's padding keys
        s = s.masked_fill(j >= seqlen_k, -INF)
    if left < INF or right < INF:
        i = torch.arange(i0, i0 + BLOCK_M, device=s.device).unsqueeze(1)
    if left < INF:  # window, bottom right: query i sees keys i + seqlen_k - seqlen_q - left ..
        s = s.masked_fill(j < i + seqlen_k - seqlen_q - left, -INF)
    if right < INF:  # .. i + seqlen_k - seqlen_q + right
        s = s.masked_fill(j > i + seqlen_k - seqlen_q + right, -INF)
    return s, slope


def shown_in_tile(block_mask, i0, j0):
    """Return block_mask for each query and key of a tile (b, h, BLOCK_M, BLOCK_N), or None."""
    if block_mask is None:
        return None
    i, j = i0 + torch.arange(BLOCK_M), j0 + torch.arange(BLOCK_N)
    rows = (i // HIDDEN_BLOCK[0]).clamp(max=block_mask.shape[2] - 1)  # padding has the last block
    columns = (j // HIDDEN_BLOCK[1]).clamp(max=block_mask.shape[3] - 1)
    return block_mask[:, :, rows][..., columns]


def window_of(window, causal):
    """Return (left, right), inf where a side is open. A causal mask is the window (None, 0)."""
    left, right = (INF if side is None else side for side in window or (None, None))
    return left, 0 if causal else right


def load_tile(x, start, block, padding=0.0):
    """Return rows start .. start + block of x (b, h, seqlen, d) in float32, padded after seqlen."""
    tile = x[:, :, start : start + block].float()
    missing = block - tile.shape[2]
    return torch.nn.functional.pad(tile, (0, 0, 0, missing), value=padding) if missing else tile


def store_tile(x, start, tile):
    """Write the rows of tile that exist in x (b, h, seqlen, d), rounded to x's dtype."""
    rows = min(tile.shape[2], x.shape[2] - start)
    x[:, :, start : start + rows] = tile[:, :, :rows].to(x.dtype)


def add_tile(x, start, tile):
    """Add the rows of tile that exist in x (b, h, seqlen, d).

    A kernel needs atomics or a fixed order here.
    """
    rows = min(tile.shape[2], x.shape[2] - start)
    x[:, :, start : start + rows] += tile[:, :, :rows]


def add_bias_tile(dbias, i0, j0, ds, seqlen_q, seqlen_k):
    """Add dS (b, h, BLOCK_M, BLOCK_N), without its padding, to dbias (b | 1, h | 1, sq | 1, sk)."""
    ds = ds[:, :, : seqlen_q - i0, : seqlen_k - j0]
    query_rows = slice(0, 1) if dbias.shape[2] == 1 else slice(i0, i0 + BLOCK_M)  # a vector bias has one row
    tile = dbias[:, :, query_rows, j0 : j0 + BLOCK_N]
    tile += ds.sum_to_size(tile.shape)


def as_operand(x, q):
    """Round x to q's dtype and return it in float32, as operands of a tensor core are rounded."""
    return x.to(q.dtype).float()


def key_head_of(q, k):
    """Return (h,) the key head of each query head: 0 0 0 1 1 1 for 6 query and 2 key heads."""
    group = q.shape[2] // max(k.shape[2], 1)
    return torch.arange(q.shape[2], device=q.device) // max(group, 1)


def sum_query_heads(x, nheads_k):
    """(b, h, n, d) -> (b, hk, n, d): sum the gradients of the query heads that read a key head."""
    return x.unflatten(1, (nheads_k, -1)).sum(2)


def check(q, k, v, window, bias, softcap, sinks, block_mask):
    """Raise ValueError for a call outside of `supports`."""
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k, nheads_k = k.shape[1:3]
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in IMPL.supports.dtypes:
        raise ValueError(f"python_tiled: q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: should be one supported dtype")
    if k.shape[:3] != v.shape[:3] or k.shape != (batch, seqlen_k, nheads_k, headdim):
        raise ValueError(
            f"python_tiled: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} do not fit together"
        )
    if headdim not in IMPL.supports.headdims or v.shape[3] not in IMPL.supports.headdims:
        raise ValueError(f"python_tiled: headdim={headdim}, headdim_v={v.shape[3]}: should be 1 to 256")
    if nheads_k == 0 or nheads % nheads_k:
        raise ValueError(f"python_tiled: nheads={nheads} should be a multiple of nheads_k={nheads_k}")
    if bias is not None:
        full = (batch, nheads, seqlen_q, seqlen_k)
        fits = bias.dim() == 4 and bias.shape[3] == seqlen_k
        if not fits or any(n not in (1, want) for n, want in zip(bias.shape, full, strict=True)):
            raise ValueError(f"python_tiled: bias {tuple(bias.shape)} does not broadcast to {full}")
    check_window(window)
    check_softcap(softcap)
    check_sinks(sinks, nheads, q.device)
    blocks = (batch, nheads, -(-seqlen_q // HIDDEN_BLOCK[0]), -(-seqlen_k // HIDDEN_BLOCK[1]))
    if block_mask is not None:
        check_like("block_mask", block_mask, blocks, torch.bool, q.device)


IMPL = Implementation(
    name="python_tiled",
    forward=forward,
    backward=backward,
    devices={"cpu"},  # also correct on a GPU, but tiles of 16 would take thousands of small launches
    supports=Supports(
        dtypes={torch.float32, torch.float16, torch.bfloat16},
        headdims=range(1, 257),
        causal="optional",
        bias={"vector", "matrix", "boolean_vector", "boolean_matrix"},
        bias_grad=True,
        cross=True,
        gqa=True,
        softmax_scale=True,
        window={"left", "right", "both"},
        softcap=True,
        sinks=True,
        sink_grad=True,
        lse_grad=True,
        headdims_v=HEADDIMS_V,
        hidden={"blocks"},
        hidden_block=HIDDEN_BLOCK,
        shared_kv="optional",
        strides=True,
    ),
    causal_alignment="bottom_right",
    lse="natural",
    empty_rows="zero",
    precision=Precision(probabilities="operand"),
    tile=(BLOCK_M, BLOCK_N),
    share={"cpu": 0.3},  # tiles of 16 in Python take as long as emulated kernels
)
