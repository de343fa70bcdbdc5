"""memory-efficient-attention 0.1.3: chunks of queries and of keys, in PyTorch.

Its root imports JAX, which its part in PyTorch does not use: a stand-in is enough. Lengths beyond a
chunk that it does not divide are wrong (findings #72, #73): in the first variant hardly any case
has them, in the second chunks are small and divide the lengths. torch.autograd.grad refuses its
checkpoints, so `backward` calls .backward().
"""

import sys
from unittest.mock import MagicMock, patch

import torch

from flash_attest import Implementation, Supports
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

with patch.dict(sys.modules, {"jax": MagicMock()}):
    package = module_of("memory_efficient_attention", "memory_efficient_attention.attention_torch")

CHUNKS = dict(query_chunk_size=16, key_chunk_size=32)


def attention(q, k, v, *, bias=None, **chunks):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q."""
    mask, bias = (bias, None) if bias is not None and bias.dtype == torch.bool else (None, bias)
    return package.efficient_dot_product_attention(q, k, v, mask=mask, bias=bias, **chunks)


def chunked(q, k, v, *, bias=None):
    return attention(q, k, v, bias=bias, **CHUNKS)


def backward_of(function):
    def backward(dout, q, k, v, out, lse, **keywords):
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            function(*inputs, **keywords).backward(dout)
        return tuple(x.grad for x in inputs)

    return backward


def has_rows(case):
    """Return why a case is refused; None if it is not."""
    return None if case.seqlen_q and case.seqlen_k else "should have a query and a key"


def whole_chunks(case):
    """Refuse lengths that the chunks do not divide."""
    whole = case.seqlen_q % 16 == 0 and case.seqlen_k % 32 == 0
    return has_rows(case) or (None if whole else "should have whole chunks")


def implementation(name, function, accepts, bias, outside="error", **more):
    supports = Supports(
        dtypes={torch.float32}, headdims=range(1, 129), cross=True, strides=True, accepts=accepts, bias=bias,
    )  # fmt: skip
    return Implementation(
        name=f"memory_efficient_attention{name}", forward=function, backward=backward_of(function), supports=supports,
        empty_rows="undefined", outside=outside, **more,
    )  # fmt: skip


MASKS = {"boolean_vector", "boolean_matrix"}
KNOWN = known(
    Because("finding #72: some keys are counted twice").fail("keys_beyond_65535"),
    Because("finding #73: out has more rows than there are queries").fail("queries_beyond_65535"),
)
IMPLS = [
    implementation("", attention, has_rows, {"vector", "matrix", *MASKS}, known_failures=KNOWN),
    implementation("_whole_chunks", chunked, whole_chunks, MASKS, "undefined"),
]
