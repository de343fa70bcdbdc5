"""The Implementations that the suite judges: both algorithms, on a GPU or in the emulator."""

from __future__ import annotations

import torch

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.contract.one_device import one_device
from flash_attest.impls.contract.record import OUTPUTS
from flash_attest.impls.contract.shares import BLOCK_FOR_EACH_HEAD, VARIANT

from .attention import Algorithm
from .device import EMULATED
from .problem import DTYPES, LARGEST_HEADDIM

SHARE = {"cpu": 0.08}  # simulated GPU threads run one at a time


def implementation(name: str, way: Algorithm, dtypes=DTYPES, headdims=range(1, LARGEST_HEADDIM + 1), share=SHARE):
    """Return the Implementation of an algorithm."""
    return Implementation(
        name=name,
        forward=way.forward,
        backward=way.backward,
        **one_device(EMULATED),
        supports=Supports(
            dtypes=frozenset(dtypes),
            headdims=headdims,
            causal="optional",
            window={"left", "right", "both"},
            softcap=True,
            bias={"vector", "matrix"},
            bias_grad=True,
            cross=True,
            gqa=True,
            softmax_scale=True,
            strides=True,
        ),
        causal_alignment=way.alignment,
        lse="natural",
        equal_heads=frozenset(OUTPUTS),
        precision=Precision(probabilities="float32"),
        tile=(64, 64),
        traced=EMULATED,
        share=share,
    )


IMPLS = [
    implementation("numba_fa1", Algorithm("fa1"), share=SHARE | BLOCK_FOR_EACH_HEAD),
    implementation("numba_fa2", Algorithm("fa2")),
    implementation("numba_fa2_top_left", Algorithm("fa2", "top_left"), {torch.float16}, range(1, 65), share=VARIANT),
]
