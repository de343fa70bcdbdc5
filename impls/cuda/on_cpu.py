"""FlashAttention 1 and 2 in CUDA C++, on CPU tensors: pytest --impl-from impls/cuda/on_cpu.py --device cpu.

Not among the implementations that every run judges: compiling a file takes half a minute the first time. On GPUs they have
not run yet; there is no binding to CUDA tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from impls import Implementation, Precision, Supports
from impls.cuda.problem import integers
from races.cuda import CudaFile, load


@dataclass
class Algorithm:
    """fa1.cu or fa2.cu: what the host functions take beside the tensors, and what they refuse."""

    name: str  # "fa1" or "fa2"
    alignment: str = "bottom_right"

    @cached_property
    def file(self) -> CudaFile:
        """Compiled when first needed."""
        functions = [f"{self.name}_{what}" for what in ("forward", "backward", "bias_gradient", "refusal")]
        return load(Path(__file__).with_name(f"{self.name}.cu"), *functions)

    def call(self, what: str, *arguments) -> None:
        """A host function. Raises ValueError, with the numbers, for what it refuses."""
        if self.file[f"{self.name}_{what}"](*arguments, None):  # None: the stream
            text = torch.zeros(512, dtype=torch.int8)
            length = self.file[f"{self.name}_refusal"](text, 512)
            raise ValueError(bytes(text[:length].tolist()).decode())

    def forward(self, q, k, v, *, causal=False, bias=None, softmax_scale=None):
        """q (b, sq, h, d), k, v (b, sk, hk, d), bias (b | 1, h | 1, 1 | sq, sk) -> out like q, lse (b, h, sq) float32."""
        q, k, v = map(_unit_stride, (q, k, v))
        out = q.new_empty(q.shape)
        lse = _statistic(q)
        n = integers(q, k, v, bias, self.alignment if causal else None, out=out)
        scratch = (_sum(q), _statistic(q), _statistic(q)) if self.name == "fa1" else ()  # out in float32, l, m
        self.call("forward", q, k, v, bias, out, *scratch, lse, n, _scale(q, softmax_scale))
        return out, lse

    def backward(self, dout, q, k, v, out, lse, *, causal=False, bias=None, softmax_scale=None):
        """dout, out like q, lse (b, h, sq) -> dq, dk, dv like q, k, v; and dbias like bias if there is one."""
        dout, q, k, v, out = map(_unit_stride, (dout, q, k, v, out))
        dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
        delta, lse, scale = _statistic(q), lse.contiguous(), _scale(q, softmax_scale)
        n = integers(q, k, v, bias, self.alignment if causal else None, out=out, dout=dout, dq=dq, dk=dk, dv=dv)
        scratch = (_sum(q),) if self.name == "fa1" else ()  # dq in float32
        self.call("backward", dout, q, k, v, bias, out, lse, delta, *scratch, dq, dk, dv, n, scale)
        if bias is None:
            return dq, dk, dv
        dbias = bias.new_empty(bias.shape)
        shape = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        strides = torch.tensor(dbias.expand(shape).stride(), dtype=torch.int64)
        self.call("bias_gradient", dout, q, k, v, bias, lse, delta, dbias, n, strides, scale)
        return dq, dk, dv, dbias


def _unit_stride(x: torch.Tensor) -> torch.Tensor:
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _scale(q: torch.Tensor, softmax_scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale


def _statistic(q: torch.Tensor) -> torch.Tensor:
    """(batch, nheads, seqlen_q), float32: lse, l, m, delta."""
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)


def _sum(q: torch.Tensor) -> torch.Tensor | None:
    """(batch, nheads, seqlen_q, headdim), float32: where FlashAttention-1 adds up what q's dtype would round at each step."""
    b, sq, h, d = q.shape
    return None if q.dtype == torch.float32 else q.new_empty(b, h, sq, d, dtype=torch.float32)


def implementation(name: str, algorithm: Algorithm) -> Implementation:
    """One algorithm -> what it promises on the CPU."""
    return Implementation(
        name=name,
        forward=algorithm.forward,
        backward=algorithm.backward,
        devices={"cpu"},
        supports=Supports(
            dtypes={torch.float32, torch.float16, torch.bfloat16},
            headdims=range(1, 257),
            causal="optional",
            bias={"vector", "matrix"},
            bias_grad=True,
            cross=True,
            gqa=True,
            softmax_scale=True,
            strides=True,
        ),
        causal_alignment=algorithm.alignment,
        lse="natural",
        precision=Precision(probabilities="float32"),
        tile=(64, 64),
        traced=True,
        share=0.2,
    )


IMPLS = [
    implementation("cuda_fa1", Algorithm("fa1")),
    implementation("cuda_fa2", Algorithm("fa2")),
    implementation("cuda_fa2_top_left", Algorithm("fa2", "top_left")),
]
