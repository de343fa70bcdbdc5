"""Inputs that have the roundings of q, k or the scores in them, as a kernel makes them.

Where a kernel rounds before the softmax, its results can be predicted to the accuracy of float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from flash_attest.properties.instead.answer import Answer, Changed
from flash_attest.properties.instead.mistake import with_scores

ROWS_OF_BLOCK = (16, 32, 64, 128)  # rows with one quantization step
MANTISSA = 13  # the bits of float32 that tf32 lacks


def nearest_tf32(x: torch.Tensor) -> torch.Tensor:
    """Round float32 to the nearest number of tf32, ties away from 0, as cvt.rna.tf32 does."""
    bits = x.contiguous().view(torch.int32) + (1 << (MANTISSA - 1))
    return (bits & -(1 << MANTISSA)).view(torch.float32)


def cut_tf32(x: torch.Tensor) -> torch.Tensor:
    """Cut float32 to tf32, as a matrix unit does."""
    return (x.contiguous().view(torch.int32) & -(1 << MANTISSA)).view(torch.float32)


def in_tf32(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Answer], Iterator[Changed]]:
    """Return the inputs whose q and k, or one of them, are in tf32."""

    def changed(answer: Answer) -> Iterator[Changed]:
        x = answer.x
        if x.q.dtype == torch.float32:
            q, k = change(x.q), change(x.k)
            for inputs in (x.with_(q=q, k=k), x.with_(q=q), x.with_(k=k)):
                yield Changed(inputs, answer.variant)

    return changed


def scaled(*names: str) -> Callable[[Answer], Iterator[Changed]]:
    """Return the inputs whose q or k, or both, are multiplied by the scale and rounded."""

    def changed(answer: Answer) -> Iterator[Changed]:
        x, scale = answer.x, answer.case.scale
        if not scale or x.q.dtype == torch.float32:
            return
        root = math.sqrt(abs(scale))
        by = {"q": math.copysign(root, scale), "k": root} if len(names) > 1 else dict.fromkeys(names, scale)
        inputs = x.with_(**{n: (getattr(x, n).float() * by[n]).to(x.q.dtype) for n in names})

        def back(name: str, tensor: torch.Tensor) -> torch.Tensor:
            return tensor * by.get(name[1:], 1.0)  # the gradient of q itself, not of the scaled q

        yield Changed(inputs, replace(answer.variant, softmax_scale=1.0), back)

    return changed


def narrow_scores(answer: Answer) -> Iterator[Changed]:
    """Return the inputs whose scores are rounded, once or at each step."""
    x, cap = answer.x, answer.variant.softcap
    if x.q.dtype == torch.float32:
        return

    def rounded(s: torch.Tensor) -> torch.Tensor:
        return s.to(x.q.dtype).double()

    p, *_ = answer.operands(answer.plain)
    right = p.products(slice(None))
    for s in (rounded(right), rounded(rounded(right / p.scale) * p.scale) if p.scale else right):
        if cap is not None:
            s = rounded(cap * rounded(torch.tanh(rounded(s / cap))))
        yield with_scores(answer, s if x.bias is None else rounded(s + x.bias.double()))


def quantized(kind: str, by: str) -> Callable[[Answer], Iterator[Changed]]:
    """Return the inputs whose q and k are cast to int8 or fp8 (e4m3), one step for each of `by`."""

    def changed(answer: Answer) -> Iterator[Changed]:
        x = answer.x
        for rows in ROWS_OF_BLOCK if by == "block" else (0,):
            q, k = (_quantized(tensor.float(), kind, by, rows) for tensor in (x.q, x.k))
            yield Changed(x.with_(q=q, k=k), answer.variant)

    return changed


def _quantized(x: torch.Tensor, kind: str, by: str, rows: int) -> torch.Tensor:
    """Return x (b, s, h, d), cast and multiplied by its step again."""
    if by == "block":
        return torch.cat([_quantized(part, kind, "head", 0) for part in x.split(rows, 1)], 1)
    largest = x.abs().amax() if by == "tensor" else x.abs().amax((1, 3), keepdim=True)
    largest = torch.where(largest == 0, 1.0, largest)
    if kind == "int8":
        return (x / (largest / 127)).round().clamp(-127, 127) * (largest / 127)
    return (x / (largest / 448)).to(torch.float8_e4m3fn).float() * (largest / 448)
