"""Random inputs for tests of impls/cuda, and a check that outputs are attention."""

import torch

from flash_attest.impls import Precision
from tests.oracle.calls import attention, budget


def randn(*shape, device="cpu", dtype=torch.float32, seed=0):
    """Return random numbers, the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def is_attention(got, q, k, v, bias=None, dout=None, **options):
    """Check that every output in `got` is within the budget of the oracle.

    options: causal, alignment, window, softmax_scale, softcap.
    """
    q, k, v, bias, dout = (x if x is None else x.detach().cpu() for x in (q, k, v, bias, dout))
    options |= dict(bias=bias, dout=dout)
    want = attention(q, k, v, **options)
    sigma = budget(q, k, v, want, precision=Precision(probabilities="float32"), **options)
    for name, x in got.items():
        score = sigma.score(name, x.detach().cpu(), getattr(want, name))
        assert score.within, f"{name}: z={score.worst_z}, rms_ratio={score.rms_ratio}"
