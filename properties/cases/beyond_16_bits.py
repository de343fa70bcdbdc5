"""Cases with more keys, queries, batches or heads than 16 bits can count, in little memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.inputs import WINS

LARGEST = 2**16 - 1  # of a 16-bit number; CUDA's limit for the y and the z of a grid, too
BEYOND = 2**16 + 65  # more than that by a tile of 64 and part of another
MOST_ELEMENTS = 2**24 + 2**16  # of q, so that the oracle needs about 2 GB at most: 65,601 batches of 2 by 128
SOME_ROWS = 80  # queries, all beyond LARGEST among them


def with_sizes(**sizes: int) -> dict[str, Callable]:
    """Return the keywords of a law on cases with these sizes. Those beyond 16 bits stay so.

    Other sizes are as small as the implementation takes, so that the oracle needs little memory.
    """
    sizes = dict(batch=1, nheads=1, nheads_k=1) | sizes
    beyond = [name for name, n in sizes.items() if n > LARGEST]

    def fits(case: Case) -> bool:
        elements = case.batch * case.nheads * max(case.seqlen_q, case.seqlen_k) * case.headdim
        return all(getattr(case, name) > LARGEST for name in beyond) and elements <= MOST_ELEMENTS

    return dict(where=fits, toward=lambda case: case.but(**sizes))


def of_two_keys(x: Inputs, scale: float) -> Inputs:
    """Return the inputs with a q and a k for which only the first and the last key have any
    weight: 27 % and 73 %.

    So each sum over keys has two terms, whatever the number of keys is.
    """
    q, k = torch.zeros_like(x.q), torch.zeros_like(x.k)
    q[..., 0] = WINS / scale
    k[..., 0] = -1.0
    k[:, 0, :, 0] = 0.0
    k[:, -1, :, 0] = 1.0 / WINS
    return x.with_(q=q, k=k)


def of_late_values(x: Inputs) -> Inputs:
    """Return the inputs with q = 0, and a v of 0 but for the keys that 16 bits cannot count.

    Those have a 1 in column j mod headdim_v. So each has its part of out, which is small but has no
    larger terms beside it.
    """
    v, late = torch.zeros_like(x.v), torch.arange(LARGEST + 1, x.v.shape[1], device=x.v.device)
    v[:, late, :, late % v.shape[3]] = 1.0
    k = x.k.clone()
    k[..., : v.shape[3]] = v[..., : k.shape[3]]  # v may be the first columns of k
    return x.with_(q=torch.zeros_like(x.q), k=k, v=v)


def of_some_queries(x: Inputs) -> Inputs:
    """Return the inputs with a dout of 0 but for the last queries, so that sums over queries are
    short.
    """
    dout = torch.zeros_like(x.dout)
    dout[:, -SOME_ROWS:] = x.dout[:, -SOME_ROWS:]
    return x.with_(dout=dout)
