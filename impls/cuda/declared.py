"""The Implementations that the suite judges, on each device with a compiler."""

from __future__ import annotations

import os
import shutil

import torch

from flash_attest.impls import Absent, Implementation, Precision, Supports
from flash_attest.impls.contract.record import DEVICES, OUTPUTS
from flash_attest.impls.contract.shares import BLOCK_FOR_EACH_HEAD, VARIANT

from . import functions
from .algorithm import LARGEST_HEADDIM, WIDEST_HEADDIM
from .extension import nvcc
from .problem import DTYPES

NAMES = ("cuda_fa1", "cuda_fa1_wide", "cuda_fa2", "cuda_fa2_top_left", "cuda_fa2_wide")
SHARE = {"cpu": 0.2}  # simulated GPU threads run one at a time


def unavailable() -> dict[str, str]:
    """Return, for each device without a compiler here, a sentence about the missing compiler."""
    cxx, missing = os.environ.get("CXX"), {}
    if not shutil.which(cxx or "g++"):
        named = f" (CXX={cxx!r})" if cxx else ""
        missing["cpu"] = f"no g++ found{named}, which compiles the kernels for CPU tensors"
    if not nvcc():
        missing["cuda"] = "no nvcc found, which compiles the kernels for CUDA tensors"
    return missing


def implementation(
    lacking: dict[str, str],
    name: str,
    function,
    backward,
    alignment: str = "bottom_right",
    wide: bool = False,
    share: dict[str, float] = SHARE,
):
    """Return the Implementation of a function of functions.py and its backward operator.

    lacking: the result of `unavailable`. wide: whether this is the kernel for head dims beyond 256,
    which has no backward.
    """

    def run(q, k, v, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None):
        options = dict(window=window, softcap=softcap, causal_alignment=alignment)
        return function(q, k, v, bias, causal, softmax_scale, **options, return_lse=True)

    def differentiate(
        dout, q, k, v, out, lse, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None
    ):
        options = causal, *(window or (None, None)), softmax_scale, softcap, alignment
        return backward(dout, q, k, v, bias, out, lse, *options, bias is not None)

    return Implementation(
        name=name,
        forward=run,
        backward=None if wide else differentiate,  # not "autograd": the benchmark counts the recomputation of S
        devices=set(DEVICES) - set(lacking),
        unavailable=lacking,
        supports=Supports(
            dtypes={torch.float32} if wide else set(DTYPES),
            headdims=range(LARGEST_HEADDIM + 1, WIDEST_HEADDIM + 1) if wide else range(1, LARGEST_HEADDIM + 1),
            causal="optional",
            window={"left", "right", "both"},
            softcap=True,
            bias={"vector", "matrix"},
            bias_grad=not wide,
            cross=True,
            gqa=True,
            softmax_scale=True,
            strides=True,
        ),
        causal_alignment=alignment,
        lse="natural",
        equal_heads=frozenset(OUTPUTS),
        precision=Precision(probabilities="float32"),
        tile=(64, 64),
        traced="cpu" not in lacking,
        share=share,
    )


def implementations() -> list[Implementation | Absent]:
    """Return every implementation. If both compilers are missing, return an Absent for each."""
    lacking = unavailable()
    if len(lacking) == len(DEVICES):
        return [Absent(name, "; ".join(lacking.values())) for name in NAMES]
    fa1 = functions.flash_attention_1, functions.OPERATORS["fa1"].backward
    fa2 = functions.flash_attention_2, functions.OPERATORS["fa2"].backward
    return [
        implementation(lacking, "cuda_fa1", *fa1, share=SHARE | BLOCK_FOR_EACH_HEAD),
        implementation(lacking, "cuda_fa1_wide", *fa1, wide=True, share=VARIANT),
        implementation(lacking, "cuda_fa2", *fa2),
        implementation(lacking, "cuda_fa2_top_left", *fa2, alignment="top_left", share=VARIANT),
        implementation(lacking, "cuda_fa2_wide", *fa2, wide=True, share=VARIANT),
    ]
