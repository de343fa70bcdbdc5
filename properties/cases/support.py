"""Checks declarations: whether an implementation runs here, a law applies, a case is supported."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from flash_attest.impls.contract.record import ContractError, Implementation
from flash_attest.properties.cases.bias_masks import may_have_empty_rows
from flash_attest.properties.cases.case import Case, text_of
from flash_attest.properties.cases.feature import Feature
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.form_features import RAGGED
from flash_attest.properties.progress import NOW
from flash_attest.texts import cut, type_name, words_of

LONGEST_REPR, LONGEST_REASON = 200, 1000  # characters

# The needs of laws besides features, each with the reason shown if an implementation lacks it.
OTHER_NEEDS: dict[str, tuple[Callable[[Implementation], bool], str]] = {
    "lse": (lambda impl: impl.lse is not None, "forward returns no lse"),
    "backward": (lambda impl: impl.backward is not None, "there is no backward"),
    "autograd": (lambda impl: impl.backward == "autograd", "backward is a function, it always gives every gradient"),
    "dbias": (lambda impl: impl.gives_dbias, "gives no dbias"),
    "dsink": (lambda impl: impl.gives_dsink, "gives no dsink"),
    "dense": (lambda impl: impl.supports.form == "dense", "its form is not dense, and this law lays out memory itself"),
    "keys": (lambda impl: impl.supports.form != "parts", 'its form is "parts", so it computes no scores'),
    "chunks": (
        lambda impl: impl.supports.cross or impl.supports.causal != "never" or bool(impl.supports.window_kinds),
        "takes as many queries as keys only, and no mask, so no chunk of the queries is a call",
    ),
    "lengths": (lambda impl: impl.supports.form in RAGGED, "its form has no tensors of lengths"),
    "cache": (lambda impl: impl.supports.form in ("cache", "paged"), "its form has no cache and no pages"),
    "rows of nobody": (
        lambda impl: impl.slack_rows == "zero" and impl.supports.form in ("varlen", "padded", "paged"),
        'slack_rows="undefined", or its form has no rows that belong to no sequence',
    ),
    "traced": (lambda impl: impl.traced, "declares no kernels that can be traced here (traced=True)"),
    "empty rows": (
        lambda impl: impl.empty_rows == "zero",
        'empty_rows="undefined": rows with no visible key have no defined result',
    ),
    "outside": (
        lambda impl: impl.outside == "error",
        'outside="undefined": calls outside of `supports` have no defined result',
    ),
}
SAME_PROCESS = "same process"  # a need that depends on the caller, not on the implementation
NOT_SAME_PROCESS = "with --untrusted the kernel runs in another process, and its inputs and outputs are copied"
SHARED_MEMORY = "shared memory"  # a need: the judging process itself reads inputs and outputs where a call leaves them
NOT_SHARED_MEMORY = (
    "with --untrusted only the kernel's process sees what is written to this memory (of a GPU, or of a process that must "
    "not be read here), and what it says is not believed"
)
FEATURE_NEEDS = {name: (f, need) for f in FEATURES.values() for name, need in f.needs.items()}


def not_here(impl: Implementation, device: str) -> str | None:
    """Return why it cannot be judged on this device, or None if it can.

    The reason includes the implementation's own words for it (`unavailable`).
    """
    if device in impl.devices:
        return None
    lacks = impl.unavailable.get(device)
    return f"runs on {', '.join(sorted(impl.devices))} only; this run judges on {device}{f': {lacks}' if lacks else ''}"


def missing(
    impl: Implementation, needs: tuple[str, ...], *, same_process: bool = True, sees_memory: bool = True
) -> str | None:
    """Return the reason of the first need that the implementation does not meet, or None.

    same_process: whether the judging process itself calls it (Caller.same_process). sees_memory:
    whether it reads inputs and outputs where a call leaves them (Caller.sees_memory).
    """
    for name in needs:
        if name == SAME_PROCESS:
            met, reason = same_process, NOT_SAME_PROCESS
        elif name == SHARED_MEMORY:
            met, reason = sees_memory, NOT_SHARED_MEMORY
        elif name in FEATURE_NEEDS:
            feature, need = FEATURE_NEEDS[name]
            met, reason = any(feature.takes(impl.supports, value) for value in need.values), need.reason
        else:
            has, reason = OTHER_NEEDS[name]
            met = has(impl)
        if not met:
            # Our implementations in Triton and Numba can be traced in another process.
            elsewhere = impl.unavailable.get("cpu") if name == "traced" else None
            return f"{reason}; {elsewhere}" if elsewhere else reason
    return None


def unsupported(
    impl: Implementation,
    case: Case,
    features: Iterable[Feature] = tuple(FEATURES.values()),
    asks_accepts: bool = True,
) -> str | None:
    """Return why the implementation does not support the case; None if it does.

    features: those that can be unsupported. asks_accepts: whether `accepts` may refuse the case.
    Raises ContractError if it raises, or returns neither None nor a text.
    """
    what = None
    for feature in features:
        value = feature.value(case)
        if not feature.takes(impl.supports, value):
            what = feature.words(value)
            break
    if what is None and case.hidden is not None and not _in_declared_notation(impl, case):
        block = case.hidden_block
        what = f"hidden {case.hidden} as {'kv_indices' if block is None else f'hidden_block={text_of(block)}'}"
    if what is None and impl.empty_rows != "zero" and may_have_empty_rows(case, impl.causal_alignment):
        what = "a row with no visible key"
    if what is None and case.bias_mask == "finite" and narrow_statistics(impl, case):
        what = "a bias of -1e4 or less, to which float16 and bfloat16 round a row's maximum by up to 128,"
    if what is not None:
        return f"{what} is not supported by {impl.name}"
    return _refused(impl.supports.accepts, case) if asks_accepts and impl.supports.accepts else None


def _in_declared_notation(impl: Implementation, case: Case) -> bool:
    """Return whether the hidden keys of a case are in declared blocks, or in declared lists."""
    block, kinds = case.hidden_block, impl.supports.hidden_kinds
    return "indices" in kinds if block is None else "blocks" in kinds and block == tuple(impl.supports.hidden_block)


def narrow_statistics(impl: Implementation, case: Case) -> bool:
    """Return whether the maximum and the sum of a row are kept in a half dtype."""
    return impl.precision.statistics == "operand" and case.dtype != torch.float32


def _refused(accepts: Callable[[Case], str | None], case: Case) -> str | None:
    """Return what the implementation's `accepts` says about a case.

    In a judging process its time is limited as a call's is: `accepts` may hang.
    """
    problem, reason = "", None
    with NOW.asking("supports.accepts"):
        try:
            reason = accepts(case)
            if reason is not None and not (isinstance(reason, str) and reason):
                problem = f"supports.accepts returns {cut(repr(reason), LONGEST_REPR)}: should be None, or why not"
            elif reason is not None:
                reason = cut(str(reason), LONGEST_REASON)
        except BaseException as error:  # SystemExit, too
            if isinstance(error, KeyboardInterrupt) and not NOW.isolated:  # Ctrl-C
                raise
            text = cut(words_of(error), LONGEST_REASON)
            problem = f"supports.accepts raises {type_name(error)}{text and f': {text}'}"
    if problem:
        raise ContractError(f"{problem} [for {case}]")
    return reason
