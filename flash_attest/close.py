"""Compares results of attention with a float64 oracle, without a tolerance to choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from flash_attest.close_arguments import as_tensor, check_options, check_tensors, heads_last
from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import GRADIENTS, ContractError, Implementation
from flash_attest.impls.contract.supports import DTYPES, Supports
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.oracle import INDEPENDENT, LINEAR, form_of
from flash_attest.oracle.structure import roundings_repeat
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.comparisons import check_budget
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.instead.given import computed_in
from flash_attest.properties.trial import Trial

MATCHES = "Matches (within the error budget)"


def assert_attention_close(
    out: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    lse: Any = None,
    dout: Any = None,
    dlse: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    dbias: Any = None,
    dsink: Any = None,
    causal: bool = False,
    causal_alignment: Literal["bottom_right", "top_left"] = "bottom_right",
    window: tuple[int | None, int | None] | None = None,
    bias: Any = None,
    softmax_scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
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

    q, dq: (batch, seqlen_q, nheads, headdim). out, dout: the same with headdim_v.
    k, dk: (batch, seqlen_k, nheads_k, headdim), where nheads_k divides nheads. v, dv: the same with
        headdim_v, which is usually headdim. batch is at least 1, both head dims are 1 to 1024.
        layout="bhsd" swaps the seqlen and head axes. All have one dtype: float32, float16 or
        bfloat16. Tensors of other frameworks are read through DLPack; NumPy arrays are accepted.
    lse: (batch, nheads, seqlen_q) in float32, the natural logarithm of a row's sum of exp(score),
        with exp(sink).
    bias, dbias: (batch or 1, nheads or 1, seqlen_q or 1, seqlen_k). The bias is added to the scores
        after softmax_scale, and may hold -inf. A bias in torch.bool is a mask, True where a query
        sees a key.
    dout, dlse: the gradients of the loss with respect to out and lse. Any gradient needs one of
        them; the other one is 0 if it is not given. dlse has the shape of lse.
    causal_alignment: "bottom_right": query i stands at key i' = i + seqlen_k - seqlen_q.
        "top_left": at key i' = i. causal: it sees key j if j <= i'.
    window: (left, right): query i sees key j if i' - left <= j <= i' + right. A side is None if it
        is open.
    softmax_scale: the factor of the scores. None means 1 / sqrt(headdim).
    softcap: c: scores before the bias are c tanh(score / c). None means no cap.
    sinks, dsink: (nheads), the score of one more key of each query head, which has no value. -inf
        for a head without a sink.
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
    values = {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv, "dbias": dbias, "dsink": dsink}
    operands = {"q": q, "k": k, "v": v, "dout": dout, "bias": bias, "sinks": sinks, "dlse": dlse}
    results = {name: as_tensor(name, value) for name, value in values.items() if value is not None}
    tensors = {name: as_tensor(name, value) for name, value in operands.items() if value is not None}
    window = None if window == (None, None) else window
    check_options(layout, causal_alignment, inputs, causal, window, softmax_scale, softcap)
    if layout == "bhsd":
        results, tensors = ({name: heads_last(name, t) for name, t in group.items()} for group in (results, tensors))
    x = Inputs(**{name: tensors.get(name) for name in operands})
    check_tensors(x, results, layout)
    if x.dout is None:  # a trial needs dout, even if no gradient is judged
        x = x.with_(dout=torch.zeros_like(results["out"]))
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
    options = {"causal": causal, "window": window, "softmax_scale": softmax_scale, "softcap": softcap}
    trial = Given(impl, _case_of(x, options), x.q.device.type)
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
        shared = form_of("spread", self.case.dtype, self.impl.precision, self.case.softcap)
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


def _not_called(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("the results are given")


def _case_of(x: Inputs, options: dict[str, Any]) -> Case:
    (batch, seqlen_q, nheads, headdim), (_, seqlen_k, nheads_k, _) = x.q.shape, x.k.shape
    bias = {}
    if x.bias is not None:
        rows = "vector" if x.bias.shape[2] == 1 and seqlen_q != 1 else "matrix"
        kind = f"boolean_{rows}" if x.bias.dtype == torch.bool else rows
        bias = dict(bias=kind, bias_batch=x.bias.shape[0], bias_nheads=x.bias.shape[1])
        bias["bias_dtype"] = x.bias.dtype if x.bias.dtype in DTYPES else torch.float32
    more = {"headdim_v": x.v.shape[3], "sinks": None if x.sinks is None else "spread", "dlse": x.dlse is not None}
    return Case(batch, seqlen_q, seqlen_k, nheads, nheads_k, headdim, x.q.dtype, **options, **bias, **more)


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
        form = form_of("spread", trial.case.dtype, precision, trial.case.softcap)
        return LINEAR if LINEAR in (form, trial.form) else INDEPENDENT

    return computed_in(trial.impl, trial.case, trial.x, results, form_of_precision)
