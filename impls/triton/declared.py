"""The Implementations that the suite judges: each way of computing attention with these kernels."""

from __future__ import annotations

import torch

from impls import Implementation, Precision, Supports
from impls.contract import OUTPUTS

from .attention import FlashAttention2
from .interpreter import INTERPRETED
from .problem import DTYPES, LARGEST_HEADDIM

# A process either interprets all kernels or compiles all: Triton reads TRITON_INTERPRET when it is imported.
OTHER_DEVICE = (
    {"cuda": "with TRITON_INTERPRET=1 Triton takes CPU tensors"}
    if INTERPRETED
    else {"cpu": "Triton takes CPU tensors with TRITON_INTERPRET=1"}
)


def implementation(name: str, way: FlashAttention2, dtypes=DTYPES, headdims=range(1, LARGEST_HEADDIM + 1)):
    """One way of computing -> what it promises."""
    return Implementation(
        name=name,
        forward=way.forward,
        backward=way.backward,
        devices={"cpu"} if INTERPRETED else {"cuda"},
        unavailable=OTHER_DEVICE,
        supports=Supports(
            dtypes=frozenset(dtypes),
            headdims=headdims,
            causal="optional",
            bias={"vector", "matrix"},
            bias_grad=True,
            cross=True,
            gqa=True,
            softmax_scale=True,
            strides=True,
        ),
        causal_alignment=way.alignment,
        lse="natural",
        empty_rows="zero",
        repeatable=frozenset(OUTPUTS) - ({"dq"} if way.atomic else set()),
        precision=Precision(multiply="tf32" if way.tf32 else "operand"),
        share=0.05 if INTERPRETED else 1.0,
    )


IMPLS = [
    implementation("triton_fa2", FlashAttention2()),
    implementation("triton_fa2_atomic", FlashAttention2(atomic=True)),
]
if not INTERPRETED:  # tf32 differs only on a GPU; the other is too slow to interpret and differs only in its mask
    IMPLS += [
        implementation("triton_fa2_tf32", FlashAttention2(tf32=True), {torch.float32}),
        implementation("triton_fa2_top_left", FlashAttention2(alignment="top_left"), {torch.float16}, (64,)),
    ]
