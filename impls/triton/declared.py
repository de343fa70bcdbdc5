"""The Implementations that the suite judges: each way to compute attention with these kernels."""

from __future__ import annotations

from dataclasses import replace

import torch

from flash_attest.impls import Absent, Implementation, Precision, Supports
from flash_attest.impls.contract.one_device import one_device
from flash_attest.impls.contract.record import OUTPUTS
from flash_attest.impls.contract.shares import VARIANT

from . import tma
from .attention import FlashAttention2
from .device import EMULATED
from .paged import PagedDecode, merge_parts
from .problem import DTYPES, LARGEST_HEADDIM
from .varlen import FlashAttention2Varlen

# In the emulator, compiling takes most of the time, and beyond 128 three times as long.
# tests/impls/triton/test_large_heads.py has larger head dims.
HEADDIMS = range(1, (128 if EMULATED else LARGEST_HEADDIM) + 1)
# Any other pair is computed by the same kernels.
HEADDIMS_V = ((8, 16), (16, 8), (33, 20), (64, 128), (128, 64), (192, 128))
SHARE = {"cpu": 0.1}  # simulated GPU threads run one at a time
# Products in float32 take most of the time. A form differs from the dense calls in addresses only.
HALVES = (torch.float16, torch.bfloat16) if EMULATED else DTYPES
SMALL = range(1, 65) if EMULATED else HEADDIMS  # for an implementation that differs from another only in its products


def implementation(
    name: str, way: FlashAttention2, dtypes=DTYPES, headdims=HEADDIMS, share=SHARE, *, varlen: bool = False
):  # fmt: skip
    """Return the Implementation of one way to compute attention.

    Head dims beyond `headdims` are refused, so that no law compiles them.
    """
    way = replace(way, largest=max(headdims))
    called = FlashAttention2Varlen(way) if varlen else way
    fixed = frozenset(OUTPUTS) - ({"dq"} if way.atomic else set())
    return Implementation(
        name=name,
        forward=called.forward,
        backward=called.backward,
        **one_device(EMULATED),
        supports=Supports(
            dtypes=frozenset(dtypes),
            headdims=headdims,
            causal="optional",
            bias="none" if varlen else {"vector", "matrix"},
            bias_grad=not varlen,
            cross=True,
            gqa=True,
            softmax_scale=True,
            window={"left", "right", "both"},
            softcap=True,
            sinks=True,
            sink_grad=True,
            lse_grad=True,
            form="varlen" if varlen else "dense",
            headdims_v=[pair for pair in HEADDIMS_V if max(pair) in headdims],
            strides=True,
        ),
        causal_alignment=way.alignment,
        lse="natural",
        empty_rows="zero",
        slack="anything",
        repeatable=fixed,
        equal_heads=fixed - {"dsink"},  # torch sums its parts, in an order that depends on a row's alignment
        precision=Precision(multiply="tf32" if way.tf32 else "operand"),
        share=share,
        traced=EMULATED,
        compiles=True,
    )


def merge(out_parts, lse_parts, *, causal=False, **options):
    """Merge parts. A causal mask hides keys in the parts already."""
    return merge_parts(out_parts, lse_parts, **options)


OF_PARTS = frozenset({"out", "lse"})
PAGED = Implementation(
    name="triton_paged_decode",
    forward=PagedDecode(largest=max(SMALL)).forward,
    **one_device(EMULATED),
    supports=Supports(
        dtypes=frozenset(DTYPES),
        headdims=SMALL,
        causal="optional",
        cross=True,
        gqa=True,
        softmax_scale=True,
        window={"left", "right", "both"},
        softcap=True,
        sinks=True,
        headdims_v=[pair for pair in HEADDIMS_V if max(pair) in SMALL],
        form="paged",
        page_sizes=(4, 16, 64, 128),  # any other is taken, too
        append=True,
        splits=range(1, 65),
        strides="last_contiguous",
    ),
    lse="natural",
    slack="unseen",
    invariant={"batch", "chunks"},
    repeatable=OF_PARTS,
    equal_heads=OF_PARTS,
    precision=Precision(merge="lse"),
    share=SHARE,
    traced=EMULATED,
    compiles=True,
)
MERGE = Implementation(
    name="triton_merge_parts",
    forward=merge,
    **one_device(EMULATED),
    supports=Supports(
        dtypes=frozenset(DTYPES),
        headdims=SMALL,
        causal="optional",
        cross=True,
        gqa=True,
        sinks=True,
        form="parts",
        splits=range(1, 65),
    ),
    lse="natural",
    repeatable=OF_PARTS,
    equal_heads=OF_PARTS,
    precision=Precision(merge="lse"),
    share=VARIANT,
    traced=EMULATED,
    compiles=True,
)


def by_tma() -> Implementation | Absent:
    """Return the forward by TMA, if it runs here."""
    if reason := tma.lacking():
        return Absent("triton_fa2_tma", reason)
    way = tma.ByTma()
    return Implementation(
        name="triton_fa2_tma",
        forward=way.forward,
        backward=way.backward,
        **one_device(EMULATED),
        supports=Supports(
            dtypes={torch.float16, torch.bfloat16},
            headdims=tma.HEADDIMS,
            causal="optional",
            cross=True,
            gqa=True,
            softmax_scale=True,
            lse_grad=True,
            strides=True,
        ),
        lse="natural",
        slack="anything",
        share=VARIANT,
        traced=EMULATED,
        compiles=True,
    )


IMPLS = [
    implementation("triton_fa2", FlashAttention2()),
    implementation("triton_fa2_atomic", FlashAttention2(atomic=True), share=VARIANT),
    implementation("triton_fa2_tf32", FlashAttention2(tf32=True), {torch.float32}, SMALL, share=VARIANT),
    implementation("triton_fa2_top_left", FlashAttention2(alignment="top_left"), {torch.float16}, (64,), share=VARIANT),
    implementation("triton_fa2_varlen", FlashAttention2(), HALVES, share=VARIANT, varlen=True),
    by_tma(),
    PAGED,
    MERGE,
]
