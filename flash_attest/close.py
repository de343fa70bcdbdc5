"""Compares results of attention with a float64 oracle, without a tolerance to choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from flash_attest.impls.contract.call import Inputs, Outputs
from flash_attest.impls.contract.record import (
    DTYPES,
    LARGEST_HEADDIM,
    ContractError,
    Implementation,
    Precision,
    Supports,
)
from flash_attest.oracle import ALIGNMENTS, INDEPENDENT, LINEAR, form_of
from flash_attest.oracle.structure import roundings_repeat
from flash_attest.properties.cases.case import Case, text_of
from flash_attest.properties.checks.comparisons import check_budget
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.instead.given import computed_in
from flash_attest.properties.trial import Trial

GRADIENTS = {"dq": "q", "dk": "k", "dv": "v", "dbias": "bias"}  # gradient: the input that has its shape
LAYOUTS = ("bshd", "bhsd")
INPUTS = (None, "random", "structured")
MATCHES = "Matches (within the error budget)"


def assert_attention_close(
    out: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    lse: Any = None,
    dout: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    dbias: Any = None,
    causal: bool = False,
    causal_alignment: Literal["bottom_right", "top_left"] = "bottom_right",
    bias: Any = None,
    softmax_scale: float | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    precision: Precision | None = None,
    tile: tuple[int, int] | None = None,
    inputs: Literal["random", "structured"] | None = None,
) -> Mapping[str, float]:
    """Assert that every given result is as close to exact attention as rounding allows.

        worst = assert_attention_close(out, q, k, v, causal=True, layout="bhsd")
        assert_attention_close(out, q, k, v, lse=lse, dout=dout, dq=dq, dk=dk, dv=dv, causal=True)

    Each element's limit is derived from the inputs, the dtype and `precision` (oracle/budget.py).
    There is no tolerance to choose. Exact attention is computed in float64 on the device of q, in
    time proportional to seqlen_q * seqlen_k.

    out, q, dout, dq: (batch, seqlen_q, nheads, headdim).
    k, v, dk, dv: (batch, seqlen_k, nheads_k, headdim), where nheads_k divides nheads.
        batch is at least 1, headdim is 1 to 1024. layout="bhsd" swaps the seqlen and head axes.
        All have one dtype: float32, float16 or bfloat16. Tensors of other frameworks are read
        through DLPack; NumPy arrays are accepted.
    lse: (batch, nheads, seqlen_q) in float32, the natural logarithm of a row's sum of exp(score).
    bias, dbias: (batch or 1, nheads or 1, seqlen_q or 1, seqlen_k). The bias is added to the scores
        after softmax_scale, and may hold -inf. A bias in torch.bool is a mask, True where a query
        sees a key.
    dout: the gradient of the loss with respect to out. Any gradient needs it.
    causal_alignment: "bottom_right": query i sees key j if j <= i + seqlen_k - seqlen_q.
        "top_left": query i sees key j if j <= i.
    softmax_scale: the factor of the scores. None means 1 / sqrt(headdim).
    precision: how the kernel rounds, if it differs from `Precision()`.
    tile: (BLOCK_M, BLOCK_N) of the kernel; the message then has a table of errors by tile.
    inputs: "random" treats roundings as independent, which gives the tight budget. "structured"
        allows all of them to go in the same direction, as they do when scores tie or all weights
        are nearly equal. None chooses by looking at q and k.

    Returns {name of a result: its worst z}. z is the error in standard deviations of a correct
    kernel's error; the limit is 8.

    Raises AssertionError for the first result that is too far off. The message has the element, its
    value and the expected one, and the location of wrong elements. If the result is right for
    another definition of attention, the message names that definition. Raises ValueError for
    arguments that do not fit together.
    """
    __tracebackhide__ = True  # makes pytest show the line of the test
    if out is None:
        raise ValueError("out is None: pass what attention returned; does the function return something?")
    # Convert all tensors to PyTorch's, in the layout (batch, seqlen, nheads, headdim).
    values = {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv, "dbias": dbias}
    operands = {"q": q, "k": k, "v": v, "dout": dout, "bias": bias}
    results = {name: as_tensor(name, value) for name, value in values.items() if value is not None}
    tensors = {name: as_tensor(name, value) for name, value in operands.items() if value is not None}
    _check_options(layout, causal_alignment, inputs, causal, softmax_scale)
    if layout == "bhsd":
        results, tensors = ({name: _heads_last(name, t) for name, t in group.items()} for group in (results, tensors))
    x = Inputs(**{name: tensors.get(name) for name in ("q", "k", "v", "dout", "bias")})
    _check_tensors(x, results, layout)
    if x.dout is None:  # a trial needs dout, even if no gradient is judged
        x = x.with_(dout=torch.zeros_like(x.q))
    # Judge the results as if an implementation had just returned them.
    try:
        impl = Implementation(
            name="attention",
            forward=_not_called,
            causal_alignment=causal_alignment,
            precision=precision or Precision(),
            tile=tile,
            supports=Supports(dtypes={x.q.dtype}, headdims={x.q.shape[-1]}),
        )
    except ContractError as error:
        raise ValueError(str(error)) from None
    trial = Given(impl, _case_of(x, causal, softmax_scale), x.q.device.type)
    trial.x, trial.inputs = x, inputs
    try:
        check_budget(trial, Outputs(**{name: results.get(name) for name in ("out", "lse", *GRADIENTS)}), None, *results)
    except LawBroken as broken:
        raise AssertionError(_message(trial, broken, results)) from None
    return dict(trial.meter.worst_z)


class Given(Trial):
    """A trial whose inputs and results are given, so that nothing is called."""

    inputs: str | None = None

    @property
    def form(self) -> str:
        """Return whether roundings count as independent or add up in the worst way."""
        shared = form_of("spread", self.case.dtype, self.impl.precision)
        if shared == LINEAR or self.inputs == "structured":
            return LINEAR
        if self.inputs is None and self._structured():
            return LINEAR
        return INDEPENDENT

    def _structured(self) -> bool:
        if "structured" not in self.__dict__:
            self.__dict__["structured"] = roundings_repeat(
                self.x.q, self.x.k, self.variant(), self.case.dtype, self.impl.precision
            )
        return self.__dict__["structured"]


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


def _heads_last(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Convert (batch, nheads, seqlen, headdim) to (batch, seqlen, nheads, headdim); lse and biases
    stay as they are.
    """
    return tensor if name in ("lse", "bias", "dbias") or tensor.dim() != 4 else tensor.transpose(1, 2)


def _not_called(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("the results are given")


def _check_options(layout: str, causal_alignment: str, inputs: str | None, causal: object, scale: object) -> None:
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


def _check_tensors(x: Inputs, results: dict[str, torch.Tensor], layout: str) -> None:
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
    if gradients and x.dout is None:
        raise ValueError(
            f"{', '.join(gradients)} given without dout: pass the gradient of the loss with respect to out"
        )
    if "dbias" in results and (x.bias is None or x.bias.dtype == torch.bool):
        raise ValueError(f"dbias given {'without bias' if x.bias is None else 'for a boolean mask, which has none'}")
    (batch, seqlen_q, nheads, headdim), (_, seqlen_k, nheads_k, _) = x.q.shape, x.k.shape
    if not batch or not 1 <= headdim <= LARGEST_HEADDIM:
        raise ValueError(f"q has batch {batch} and headdim {headdim}: should be at least 1, and 1 to {LARGEST_HEADDIM}")
    if nheads_k == 0 or nheads % nheads_k:
        raise ValueError(f"k has {nheads_k} heads, which does not divide the {nheads} of q (layout={layout!r})")
    if x.bias is not None:
        _check_bias(x.bias, (batch, nheads, seqlen_q, seqlen_k))
    of_q, of_k = (batch, seqlen_q, nheads, headdim), (batch, seqlen_k, nheads_k, headdim)
    shapes = {"k": of_k, "v": of_k, "dout": of_q, "out": of_q, "lse": (batch, nheads, seqlen_q), "bias": None}
    tensors = {"k": x.k, "v": x.v, "dout": x.dout, "bias": x.bias, **results}
    shapes |= {name: tuple(getattr(x, like).shape) for name, like in GRADIENTS.items() if name in results}
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if shapes[name] is not None and tuple(tensor.shape) != shapes[name]:
            raise ValueError(_wrong_shape(name, tuple(tensor.shape), shapes[name], layout))
        if tensor.device != x.q.device:
            raise ValueError(f"{name} is on {tensor.device}, q is on {x.q.device}: move them to one device")
        want = torch.float32 if name == "lse" else x.q.dtype
        if name not in ("bias", "dbias") and tensor.dtype not in (want, torch.float64 if name == "lse" else want):
            why = "as kernels return it" if name == "lse" else "convert it, as all are judged in the dtype of q"
            raise ValueError(f"{name} has dtype {text_of(tensor.dtype)}, should have {text_of(want)}: {why}")


def _wrong_shape(name: str, shape: tuple, want: tuple, layout: str) -> str:
    """Return a message with both shapes in the caller's layout, and a hint if the layout is
    wrong.
    """
    if name == "lse":
        return f"lse has shape {shape}, should be (batch, nheads, seqlen_q) = {want}"
    other_layout = len(shape) == 4 and (shape[0], shape[2], shape[1], shape[3]) == want
    if layout == "bhsd" and name not in ("bias", "dbias"):
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


def _case_of(x: Inputs, causal: bool, softmax_scale: float | None) -> Case:
    (batch, seqlen_q, nheads, headdim), (_, seqlen_k, nheads_k, _) = x.q.shape, x.k.shape
    bias = {}
    if x.bias is not None:
        rows = "vector" if x.bias.shape[2] == 1 and seqlen_q != 1 else "matrix"
        kind = f"boolean_{rows}" if x.bias.dtype == torch.bool else rows
        bias = dict(bias=kind, bias_batch=x.bias.shape[0], bias_nheads=x.bias.shape[1])
        bias["bias_dtype"] = x.bias.dtype if x.bias.dtype in DTYPES else torch.float32
    return Case(
        batch, seqlen_q, seqlen_k, nheads, nheads_k, headdim, x.q.dtype, causal, softmax_scale=softmax_scale, **bias
    )


def _message(trial: Given, broken: LawBroken, results: dict[str, torch.Tensor]) -> str:
    """Return the message: a first line that could be the title of an issue, the case, facts,
    guesses.
    """
    guesses = broken.suggests.splitlines() if broken.suggests else []
    lines = [broken.headline, f"  {trial.case}", ""]
    for title, texts in (
        ("Observed", broken.observed),
        (MATCHES, _matches(trial, results)),
        ("Suggests (read off the pattern, not proven)", guesses),
    ):
        if lines_of_section := [f"  {line}".rstrip() for line in texts if line]:
            lines += [title, *lines_of_section, ""]
    return "\n".join(lines).rstrip()


def _matches(trial: Given, results: dict[str, torch.Tensor]) -> list[str]:
    """Return the definition of attention, or the rounding, for which the results are right."""

    def form_of_precision(precision: Precision) -> str:
        form = form_of("spread", trial.case.dtype, precision)
        return LINEAR if LINEAR in (form, trial.form) else INDEPENDENT

    return computed_in(trial.impl, trial.case, trial.x, results, form_of_precision)
