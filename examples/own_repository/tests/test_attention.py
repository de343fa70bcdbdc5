"""These tests need no GPU: attest_emulate in pyproject.toml runs kernels on the CPU instead."""

import pytest
import torch
from my_kernels.attention import BLOCK_M, BLOCK_N, HEADDIMS, attention

from flash_attest import assert_attention_close, attention_laws


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seqlen", [1, 64, 100])
def test_attention_is_as_exact_as_rounding_allows(seqlen, causal):
    q, k, v = torch.randn(3, 2, 4, seqlen, 64, device="cuda", dtype=torch.float16)
    out, lse = attention(q, k, v, causal=causal)
    assert_attention_close(out, q, k, v, lse=lse, causal=causal, layout="bhsd")


@attention_laws(
    forward=attention,
    layout="bhsd",
    lse="natural",
    causal="optional",
    dtypes={torch.float16},
    headdims=HEADDIMS,
    tile=(BLOCK_M, BLOCK_N),
    traced=True,
)
def test_attention_obeys(law):
    law()
