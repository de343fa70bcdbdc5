"""Our kernels beyond 32-bit offsets, on a GPU: a part of a large call gives the same results as
this part alone.

The law test_offsets_need_64_bits tests a few elements that are far apart.
"""

from functools import partial

import pytest
import torch

from flash_attest.impls.cuda.algorithm import Algorithm
from flash_attest.impls.cuda.extension import nvcc
from flash_attest.impls.numba.device import lacking as lacking_numba
from flash_attest.impls.triton.device import lacking as lacking_triton

BEYOND = 2**31
MEMORY = 60  # GiB. The backward of the largest call uses 41: ten tensors of about 2^31 elements
NAMES = ("out", "lse", "dq", "dk", "dv", "dbias")


def triton(**options):
    if lacking_triton():
        pytest.skip(lacking_triton())
    from flash_attest.impls.triton.attention import FlashAttention2

    return FlashAttention2(**options)


def cuda(name):
    if not nvcc():
        pytest.skip("no nvcc is installed")
    return Algorithm(name)


def numba(name):
    if lacking_numba():
        pytest.skip(lacking_numba())
    from flash_attest.impls.numba.attention import Algorithm

    return Algorithm(name)


WAYS = {
    "triton_fa2": triton,
    "triton_fa2_atomic": partial(triton, atomic=True),
    "cuda_fa1": partial(cuda, "fa1"),
    "cuda_fa2": partial(cuda, "fa2"),
    "numba_fa1": partial(numba, "fa1"),
    "numba_fa2": partial(numba, "fa2"),
}


@pytest.fixture(params=WAYS)
def way(request):
    if not torch.cuda.is_available() or torch.cuda.get_device_properties(0).total_memory < MEMORY * 2**30:
        pytest.skip(f"needs a GPU with {MEMORY} GiB of memory")
    yield WAYS[request.param]()
    torch.cuda.empty_cache()


def both_ways(way, q, k, v, dout, bias=None):
    """Return {"out", "lse", "dq", "dk", "dv" and, with a bias, "dbias"}."""
    out, lse = way.forward(q, k, v, causal=True, bias=bias)
    gradients = way.backward(dout, q, k, v, out, lse, causal=True, bias=bias)
    return dict(zip(NAMES, (out, lse, *gradients), strict=False))


def assert_same_bits(way, got, want):
    for name in want:
        if name == "dq" and getattr(way, "atomic", False):  # summed by atomics, in any order
            torch.testing.assert_close(got[name], want[name])
        else:
            assert torch.equal(got[name], want[name]), name


def test_more_than_2_31_elements(way):
    """4200 batches of 64 x 64 x 128 have 2.2e9 elements. The last batch gives the same results as a
    call with this batch alone.
    """
    q = torch.empty(4200, 64, 64, 128, dtype=torch.float16, device="cuda").normal_()
    assert q.numel() > BEYOND
    k, v, dout = q.roll(1, dims=3), q.roll(2, dims=3), q.roll(3, dims=3)
    whole = both_ways(way, q, k, v, dout)
    alone = both_ways(way, *(x[-1:].clone() for x in (q, k, v, dout)))
    # 64 keys are one tile of FlashAttention-2 in CUDA and Numba, so dq is one sum in both calls
    assert_same_bits(way, {name: x[-1:] for name, x in whole.items()}, alone)


def test_a_bias_beyond_2_31(way):
    """The bias has 2 heads x 33000 x 33000. The last queries of the last head give the same results
    as a call with these queries alone.

    dout is zero for the other queries, so that they do not contribute to dk and dv. Bits may
    differ, because tiles start at other rows.
    """
    n, last = 33_000, 64
    q, k, v, dout = torch.randn(4, 1, n, 2, 32, dtype=torch.float16, device="cuda")
    dout[:, :-last] = 0
    bias = torch.empty(1, 2, n, n, dtype=torch.float16, device="cuda").normal_()
    assert bias.numel() > BEYOND
    whole = both_ways(way, q, k, v, dout, bias)
    alone = both_ways(way, q[:, -last:], k, v, dout[:, -last:], bias[:, :, -last:].contiguous())
    for name, many, one in (
        ("out", whole["out"][:, -last:], alone["out"]),
        ("dq", whole["dq"][:, -last:], alone["dq"]),
        ("dk", whole["dk"], alone["dk"]),
        ("dv", whole["dv"], alone["dv"]),
        ("dbias", whole["dbias"][:, :, -last:], alone["dbias"]),
    ):
        torch.testing.assert_close(many, one, msg=lambda text, name=name: f"{name}: {text}")
