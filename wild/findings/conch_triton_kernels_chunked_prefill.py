"""With causal=True, the last of several queries does not see all keys; a single query does.

number: 10
package: conch-triton-kernels 1.3
law: out_matches_the_definition, out_averages_exactly_its_prefix, chunks_change_no_bit
case: batch=1 nheads=1 nheads_k=1 seqlen_q=2 seqlen_k=3 headdim=16 dtype=float32 causal=True
consequence: The mask of several queries is aligned top left, so a chunk of a prompt does not see
    the keys before it.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: the last query sees 2 of 16 keys after another query, and 16 alone
"""

import torch
from conch.ops.attention.varlen_attention import varlen_attention


def keys_seen(q):  # by the last query of q
    cu_seqlens, lengths, table = (torch.tensor(x, device="cuda", dtype=torch.int32) for x in ([0, len(q)], [16], [[0]]))
    return (varlen_attention(q, k, v, cu_seqlens, len(q), lengths, 16, table, causal=True)[-1] > 0).sum().item()


q, k = torch.zeros(2, 1, 64, device="cuda"), torch.zeros(1, 16, 1, 64, device="cuda")  # one page of 16 keys
v = torch.eye(16, 64, device="cuda").view_as(k)  # column j of out is the weight of key j
pair, alone = keys_seen(q), keys_seen(q[1:])
assert pair == alone, f"the last query sees {pair} of 16 keys after another query, and {alone} alone"
