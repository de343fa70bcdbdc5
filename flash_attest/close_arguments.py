"""Reads and checks the arguments of assert_attention_close."""

from __future__ import annotations

from typing import Any

import torch

from flash_attest.impls.contract.supports import DTYPES, LARGEST_HEADDIM
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.oracle import ALIGNMENTS, Mask, Variant
from flash_attest.properties.cases.case import text_of

# Gradients, each with the input that has its shape.
GRADIENTS = {"dq": "q", "dk": "k", "dv": "v", "dbias": "bias", "dsink": "sinks"}
LAYOUTS = ("bshd", "bhsd")
INPUTS = (None, "random", "structured")
OF_ROWS = ("lse", "dlse")  # (batch, nheads, seqlen_q), in float32
ANY_LAYOUT = ("bias", "dbias", "sinks", "dsink", *OF_ROWS)


def as_tensor(name: str, value: Any) -> torch.Tensor:
    """Return a tensor of any framework as PyTorch's, without a copy if possible.

    Raises ValueError.
    """
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (tuple, list)):
        raise ValueError(f"{name} is a {type(value).__name__}: pass its tensors separately, such as out and lse=...")
    numpy = type(value).__module__.partition(".")[0] == "numpy"
    if not numpy and not hasattr(value, "__dlpack__"):
        kind = type(value).__name__
        raise ValueError(f"{name} is a {kind}: pass a torch.Tensor, a NumPy array, or an array that has DLPack")
    try:
        return torch.from_numpy(value) if numpy else torch.from_dlpack(value)
    except Exception as error:
        raise ValueError(
            f"{name} cannot be converted to PyTorch ({error}): pass a copy, such as {name}.copy()"
        ) from None


def heads_last(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Convert (batch, nheads, seqlen, headdim) to (batch, seqlen, nheads, headdim); other tensors
    stay as they are.
    """
    return tensor if name in ANY_LAYOUT or tensor.dim() != 4 else tensor.transpose(1, 2)


def check_options(
    layout: str,
    causal_alignment: str,
    inputs: str | None,
    causal: object,
    window: object,
    scale: object,
    softcap: object,
) -> None:
    """Raise ValueError, which names the option and its value."""
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, (int, float))):
        raise ValueError(f"softmax_scale={scale!r}: should be a number, or None for 1 / sqrt(headdim)")
    for name, value, allowed in (
        ("causal", causal, (False, True)),
        ("layout", layout, LAYOUTS),
        ("causal_alignment", causal_alignment, ALIGNMENTS),
        ("inputs", inputs, INPUTS),
    ):
        if value not in allowed:
            raise ValueError(f"{name}={value!r}: should be one of {', '.join(map(repr, allowed))}")
    Variant(Mask(window=window), softcap=softcap)


def check_tensors(x: Inputs, results: dict[str, torch.Tensor], layout: str) -> None:
    """Check that shapes, dtypes and devices fit together.

    Raises ValueError, which names the tensor as the caller passed it.
    """
    for name in ("q", "k", "v"):
        if getattr(x, name).dim() != 4:
            raise ValueError(f"{name} has shape {tuple(getattr(x, name).shape)}: should have 4 axes, {layout}")
    if x.q.dtype not in DTYPES:
        known = ", ".join(map(text_of, DTYPES))
        raise ValueError(f"q has dtype {text_of(x.q.dtype)}: should be one of {known}")
    gradients = [name for name in GRADIENTS if name in results]
    if gradients and x.dout is None and x.dlse is None:
        raise ValueError(
            f"{', '.join(gradients)} given without dout: pass the gradient of the loss with respect to out"
        )
    if "dsink" in results and x.sinks is None:
        raise ValueError("dsink given without sinks")
    if "dbias" in results and (x.bias is None or x.bias.dtype == torch.bool):
        raise ValueError(f"dbias given {'without bias' if x.bias is None else 'for a boolean mask, which has none'}")
    (batch, seqlen_q, nheads, headdim), (_, seqlen_k, nheads_k, _) = x.q.shape, x.k.shape
    headdim_v = x.v.shape[3]
    if not batch or not 1 <= headdim <= LARGEST_HEADDIM:
        raise ValueError(f"q has batch {batch} and headdim {headdim}: should be at least 1, and 1 to {LARGEST_HEADDIM}")
    if not 1 <= headdim_v <= LARGEST_HEADDIM:
        raise ValueError(f"v has headdim {headdim_v}: should be 1 to {LARGEST_HEADDIM}")
    if nheads_k == 0 or nheads % nheads_k:
        raise ValueError(f"k has {nheads_k} heads, which does not divide the {nheads} of q (layout={layout!r})")
    if x.bias is not None:
        _check_bias(x.bias, (batch, nheads, seqlen_q, seqlen_k))
    shapes = {
        "k": (batch, seqlen_k, nheads_k, headdim),
        "v": (batch, seqlen_k, nheads_k, headdim_v),
        **dict.fromkeys(("dout", "out"), (batch, seqlen_q, nheads, headdim_v)),
        **dict.fromkeys(OF_ROWS, (batch, nheads, seqlen_q)),
        "bias": None,
        "sinks": (nheads,),
    }
    tensors = {"k": x.k, "v": x.v, "dout": x.dout, "bias": x.bias, "sinks": x.sinks, "dlse": x.dlse, **results}
    shapes |= {name: tuple(getattr(x, like).shape) for name, like in GRADIENTS.items() if name in results}
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if shapes[name] is not None and tuple(tensor.shape) != shapes[name]:
            raise ValueError(_wrong_shape(name, tuple(tensor.shape), shapes[name], layout))
        if tensor.device != x.q.device:
            raise ValueError(f"{name} is on {tensor.device}, q is on {x.q.device}: move them to one device")
        if name in ANY_LAYOUT and name not in OF_ROWS:
            continue
        want = torch.float32 if name in OF_ROWS else x.q.dtype
        if tensor.dtype not in (want, torch.float64 if name in OF_ROWS else want):
            why = "as kernels return it" if name == "lse" else "convert it, as all are judged in the dtype of q"
            why = "convert it" if name == "dlse" else why
            raise ValueError(f"{name} has dtype {text_of(tensor.dtype)}, should have {text_of(want)}: {why}")
    if x.sinks is not None:
        Variant(sinks=x.sinks)


def _wrong_shape(name: str, shape: tuple, want: tuple, layout: str) -> str:
    """Return a message with both shapes in the caller's layout, and a hint if the layout is
    wrong.
    """
    if name in OF_ROWS:
        return f"{name} has shape {shape}, should be (batch, nheads, seqlen_q) = {want}"
    if name in ("sinks", "dsink"):
        return f"{name} has shape {shape}, should be (nheads) = {want}"
    other_layout = len(shape) == 4 and (shape[0], shape[2], shape[1], shape[3]) == want
    if layout == "bhsd" and name not in ANY_LAYOUT:
        shape, want = ((*each[:1], each[2], each[1], *each[3:]) if len(each) == 4 else each for each in (shape, want))
    return f"{name} has shape {shape}, should be {want}{f': is layout={layout!r} right?' if other_layout else ''}"


def _check_bias(bias: torch.Tensor, sizes: tuple[int, int, int, int]) -> None:
    """Check a bias.

    Raises ValueError for integers, and for a shape that does not broadcast.
    """
    if bias.dtype != torch.bool and not bias.is_floating_point():
        raise ValueError(f"bias has dtype {text_of(bias.dtype)}: should be a floating point dtype, or bool for a mask")
    batch, nheads, seqlen_q, seqlen_k = sizes
    fits = bias.dim() == 4 and all(n in (1, m) for n, m in zip(bias.shape, sizes[:3], strict=False))
    if not fits or bias.shape[-1] != seqlen_k:
        like = f"({batch} or 1, {nheads} or 1, {seqlen_q} or 1, {seqlen_k})"
        raise ValueError(f"bias has shape {tuple(bias.shape)}, should be {like}")
