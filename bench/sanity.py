"""Checks a result before it is timed: every row of every output is close to float32 attention.

Wrong kernels are often fast. The bound is loose, because the laws in properties/ do the judging.
"""

from __future__ import annotations

import torch

from flash_attest.impls.contract.call import run
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.impls.torch_math import IMPL as MANUAL
from flash_attest.properties.cases.case import Case, Window
from flash_attest.properties.checks.pictures import place_of

NAMES = ("out", "dq", "dk", "dv")
HEAD = 0.05  # relative to a head's length: about 10 times the rounding of bfloat16
# The bound relative to a row's length. delta is computed from a rounded out, so dq is 15 % off in
# bfloat16 where it nearly cancels.
ROW = 0.5
LEAST = 1e-3  # a row that is 0 up to rounding (dq of a query with one key) has no relative error
# float32 scores in one chunk of heads: 512 MiB. Manual attention holds 5 such matrices.
SCORES_AT_ONCE = 2**27


def make_inputs(case: Case, device: str, seed: int) -> Inputs:
    """Draw q, k, v, dout (b, s, h, d) from the standard normal distribution.

    Zeros are not used, because on them a GPU draws less power and runs faster than on real data.
    """
    generator = torch.Generator(device).manual_seed(seed)
    shape = (case.batch, case.seqlen_q, case.nheads, case.headdim)
    return Inputs(*(torch.randn(shape, generator=generator, device=device).to(case.dtype) for _ in range(4)))


def reference(x: Inputs, causal: bool, backward: bool, window: Window | None = None) -> Outputs:
    """Compute float32 attention.

    x (b, s, h, d) in any dtype -> out and, with `backward`, dq, dk, dv (b, s, h, d) float32. A few
    heads at a time are computed, to limit the memory.
    """
    batch, seqlen, nheads, _ = x.q.shape
    heads = {name: tensor.transpose(1, 2).flatten(0, 1).unsqueeze(2) for name, tensor in x.items()}  # (b * h, s, 1, d)
    step = max(1, SCORES_AT_ONCE // seqlen**2)
    chunks = []
    for first in range(0, batch * nheads, step):
        few = Inputs(**{name: tensor[first : first + step].float() for name, tensor in heads.items()})
        chunks.append(run(MANUAL, few, causal=causal, window=window, backward=backward))

    def whole(name: str) -> torch.Tensor:
        return torch.cat([getattr(chunk, name) for chunk in chunks]).squeeze(2).unflatten(0, (batch, nheads))

    return Outputs(**{name: whole(name).transpose(1, 2) for name in (NAMES if backward else NAMES[:1])})


def mistake(got: Outputs, want: Outputs, names: tuple[str, ...]) -> str | None:
    """Return a message about the first wrong output (b, s, h, d) of `names`, or None.

    A head may be off by HEAD of its length. A row may be off by ROW of its own length or of the
    typical length of the head's rows, whichever is longer.
    """
    for name in names:
        g, w = getattr(got, name).float(), getattr(want, name)
        if infinite := int((~g.isfinite()).sum()):
            return f"{name}: {infinite} of {g.numel()} values are not finite"
        error, length = (g - w).norm(dim=-1), w.norm(dim=-1)  # (b, s, h)
        typical = length.square().mean(1, keepdim=True).sqrt().clamp_min(LEAST)  # (b, 1, h)
        rows = error / torch.maximum(length, typical)
        heads = error.square().mean(1, keepdim=True).sqrt() / typical
        for ratios, bound in ((rows, ROW), (heads, HEAD)):
            if (worst := ratios.max().item()) > bound:
                b, i, h = place_of(ratios.argmax(), ratios.shape)
                where = f"{name} of batch {b}, head {h}" + f", row {i}" * (ratios is rows)
                return f"{where} is off by {worst:.0%} of its length, should be {bound:.0%} at most"
    return None
