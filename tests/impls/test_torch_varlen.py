"""The windows of torch_varlen, as FlashAttention-2 reads them. No kernel runs here."""

import itertools

import pytest
import torch

from flash_attest.impls import torch_varlen

varlen = pytest.importorskip("torch.nn.attention.varlen", reason="this PyTorch has no varlen_attn")
SIDES = (None, 0, 1, 3, 9)


def seen_in_fa2(seqlen_q, seqlen_k, max_seqlen_k, left, right):
    """Return which keys each query sees: mha_varlen_fwd and set_params_fprop read a window so."""
    left, right = (-1 if side >= max_seqlen_k else side for side in (left, right))
    if left < 0 <= right:
        left = max_seqlen_k
    if right < 0 <= left:
        right = max_seqlen_k
    ahead = torch.arange(seqlen_k) - torch.arange(seqlen_q)[:, None] - (seqlen_k - seqlen_q)
    return torch.ones_like(ahead, dtype=torch.bool) if left < 0 else (-left <= ahead) & (ahead <= right)


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(3, 1), (1, 3), (4, 4), (7, 2), (2, 7), (5, 9)])
def test_windows_hide_as_defined(monkeypatch, seqlen_q, seqlen_k, causal):
    handed = {}

    def varlen_attn(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *, window_size, **_):
        handed.update(max_seqlen_k=max_seqlen_k, sides=window_size)
        return torch.zeros_like(q), torch.zeros(q.shape[1], len(q))

    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    q, k = (torch.zeros(length, 1, 8) for length in (seqlen_q, seqlen_k))
    starts = [torch.tensor([0, length], dtype=torch.int32) for length in (seqlen_q, seqlen_k)]
    for left, right in itertools.product(SIDES, (None,) if causal else SIDES):
        torch_varlen.forward(
            q, k, k, cu_seqlens_q=starts[0], cu_seqlens_k=starts[1], max_seqlen_q=seqlen_q, max_seqlen_k=seqlen_k,
            causal=causal, window=(left, right),
        )  # fmt: skip
        got = seen_in_fa2(seqlen_q, seqlen_k, handed["max_seqlen_k"], *handed["sides"])
        ahead = torch.arange(seqlen_k) - torch.arange(seqlen_q)[:, None] - (seqlen_k - seqlen_q)
        right = 0 if causal else right
        expected = torch.ones_like(got) if left is None else ahead >= -left
        expected &= True if right is None else ahead <= right
        assert torch.equal(got, expected), (left, right)
