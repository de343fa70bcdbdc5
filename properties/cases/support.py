"""What an implementation declares, asked from the suite's side: is this case inside its promise, does this law apply?"""

from __future__ import annotations

from collections.abc import Callable

from impls.contract import ContractError, Implementation
from properties.cases.case import Case, text_of
from properties.judging.verdict import ELSEWHERE

# What a law may need, and the reason that is shown where an implementation does not have it.
NEEDS: dict[str, tuple[Callable[[Implementation], bool], str]] = {
    "lse": (lambda impl: impl.lse is not None, "forward returns no lse"),
    "backward": (lambda impl: impl.backward is not None, "there is no backward"),
    "autograd": (lambda impl: impl.backward == "autograd", "backward is a function, it always gives every gradient"),
    "causal": (lambda impl: impl.supports.causal != "never", "never causal"),
    "not causal": (lambda impl: impl.supports.causal != "always", "always causal"),
    "bias": (lambda impl: bool(impl.supports.bias_kinds), "takes no bias"),
    "matrix bias": (lambda impl: "matrix" in impl.supports.bias_kinds, "takes no matrix bias"),
    "dbias": (lambda impl: impl.gives_dbias, "gives no dbias"),
    "cross": (lambda impl: impl.supports.cross, "takes no seqlen_q != seqlen_k"),
    "softmax_scale": (lambda impl: impl.supports.softmax_scale, "takes no softmax_scale"),
    "strides": (lambda impl: impl.supports.strides, "takes contiguous inputs only"),
    "traced": (lambda impl: impl.traced, "declares no CUDA kernels that run under the tracer (traced=True)"),
    "empty rows": (
        lambda impl: impl.empty_rows == "zero",
        'empty_rows="undefined": rows with no visible key promise nothing',
    ),
}


def not_here(impl: Implementation, device: str) -> str | None:
    """Why it cannot be judged on this device, and what it lacks here, if it says so; None if it runs there."""
    if device in impl.devices:
        return None
    lacks = impl.unavailable.get(device)
    return f"runs on {', '.join(sorted(impl.devices))}{ELSEWHERE}{device}{f': {lacks}' if lacks else ''}"


def missing(impl: Implementation, needs: tuple[str, ...]) -> str | None:
    """The first need that the implementation does not meet, as a reason; None if it meets all."""
    for need in needs:
        has, reason = NEEDS[need]
        if not has(impl):
            return reason
    return None


def unsupported(impl: Implementation, case: Case) -> str | None:
    """Why the case lies outside what the implementation promises; None if it lies inside.

    Raises ContractError if its `accepts` raises.
    """
    s = impl.supports
    reasons = [
        (case.dtype not in s.dtypes, f"dtype {text_of(case.dtype)}"),
        (case.headdim not in s.headdims, f"headdim {case.headdim}"),
        (case.causal and s.causal == "never", "causal"),
        (not case.causal and s.causal == "always", "not causal"),
        (case.bias is not None and case.bias not in s.bias_kinds, f"bias {case.bias}"),
        (case.seqlen_q != case.seqlen_k and not s.cross, "seqlen_q != seqlen_k"),
        (case.nheads_k != case.nheads and not s.gqa, "nheads_k < nheads"),
        (case.softmax_scale is not None and not s.softmax_scale, f"softmax_scale {case.softmax_scale}"),
        (case.layout != "contiguous" and not s.strides, f"layout {case.layout}"),
        (impl.empty_rows != "zero" and may_have_empty_rows(impl, case), "rows with no visible key"),
    ]
    for refused, what in reasons:
        if refused:
            return f"{what} is not in what {impl.name} supports"
    try:
        return s.accepts(case) if s.accepts else None
    except Exception as error:
        raise ContractError(f"supports.accepts raises {type(error).__name__}: {error} [for {case}]") from error


def may_have_empty_rows(impl: Implementation, case: Case) -> bool:
    """Whether some query of the case could be left without a visible key."""
    if case.seqlen_k == 0:
        return case.seqlen_q > 0
    if case.causal and impl.causal_alignment == "bottom_right" and case.seqlen_q > case.seqlen_k:
        return True
    return case.bias is not None and case.bias_mask in ("left", "window", "dead_row")
