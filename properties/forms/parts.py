"""Parts: a merge is judged alone. It gets the outputs and the lse of parts of the keys."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from flash_attest import oracle
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import variant_of
from flash_attest.properties.forms.sequences import random_of


class Parts:
    """The plan of a merge: num_splits parts of the keys, cut at random places, some empty.

    The oracle computes each part, in float64. It is then rounded to what the merge gets.
    """

    def __init__(self, impl: Implementation, case: Case):
        self.impl, self.case = impl, case
        self.numbers: dict[str, Any] = {"out_dtype": case.dtype}
        random = random_of(case, "parts")
        inner = sorted(random.randint(0, case.seqlen_k) for _ in range(case.num_splits - 1))
        self.cuts = [0, *inner, case.seqlen_k]
        self.words = f"in parts of {' '.join(str(b - a) for a, b in zip(self.cuts, self.cuts[1:], strict=False))} keys"

    def pack(self, x: Inputs, fill: float) -> Inputs:
        """Return the Inputs of the merge. No row belongs to nobody, so `fill` is not used."""
        variant = replace(variant_of(self.case, self.impl.causal_alignment, x), sinks=None)
        keys = torch.arange(x.k.shape[1], device=x.k.device)
        outs, lses = [], []
        for first, end in zip(self.cuts, self.cuts[1:], strict=False):
            outside = (keys < first) | (keys >= end)
            bias = torch.zeros(1, 1, 1, len(keys), device=x.k.device).masked_fill(outside, -math.inf)
            # 0 * NaN is NaN: a part must not see the values of other parts.
            v = x.v.masked_fill(outside[:, None, None], 0.0)
            part = oracle.attention(x.q, x.k, v, replace(variant, bias=bias))
            outs.append(part.out)
            lses.append(part.lse)
        lse = torch.stack(lses) / (math.log(2) if self.impl.lse == "log2" else 1.0)
        dtype = self.case.dtype if self.impl.precision.parts == "operand" else torch.float32
        return replace(
            x, q=None, k=None, v=None, plan=self, out_parts=torch.stack(outs).to(dtype), lse_parts=lse.float()
        )

    def unpack(self, outputs: Any) -> Any:
        """Return the outputs: those of a merge are dense."""
        return outputs


def parts(impl: Implementation, case: Case) -> Parts:
    """Return the plan of a merge."""
    return Parts(impl, case)
