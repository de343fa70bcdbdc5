"""The result of a call outside of the contract: an error, the right answer, or a wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from flash_attest.impls.contract.arguments import rounded_up
from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import GRADIENTS, Implementation
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.layouts import MARGIN, Placed
from flash_attest.properties.cases.outside import Probe, other_alignment, probes
from flash_attest.properties.checks.comparisons import check_near
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial

AROUND = 7.0  # the value of the memory around the inputs
RAISE = 'raise an error for such a call, support it, or declare outside="undefined"'
RESTORE = "inputs should be as before also after an error: check the call first, or restore them in a `finally`"
FARTHEST = 4  # a kernel may read this many times the size of an input: float64 instead of float16


def all_wrong_outside(trial: Trial) -> Iterator[tuple[Probe, LawBroken]]:
    """Yield each call outside of the contract that fails, and how, until the GPU is lost."""
    for probe in probes(trial.impl, trial.case):
        if trial.tries(probe.kind):
            trial.write_down(probe.what)
            if broken := wrong_outside(trial, probe):
                yield probe, broken
                if not trial.caller.device_works():
                    return


def also_wrong_outside(trial: Trial, known: Probe) -> list[str]:
    """Return a line for each call that fails besides a known one, for the message of a failure."""
    trial = replace(trial, part="", meter=Meter(clock=trial.meter.clock))  # their z are those of other calls
    wrong = all_wrong_outside(trial)
    return [f"also with {probe.what}: {broken.headline}" for probe, broken in wrong if probe.what != known.what]


def wrong_outside(trial: Trial, probe: Probe) -> LawBroken | None:
    """Return a failure if a call gives a wrong result without an error, or leaves an input changed
    with one, else None.

    The headline goes on from "called with ..., ". Forward is called alone, then with its backward.
    """
    at = replace(trial, impl=_converting(trial.impl) if probe.coarse else trial.impl, case=probe.case)
    x = probe.change(at.x)
    try:
        for backward in (False, True)[: 1 + at.backward]:
            handed, placed = _amid(at, x)
            got = at.caller.answer(handed, backward=backward)
            if got is None:
                return _changed_by_an_error(at, placed, x)
            if not probe.answered:
                return LawBroken("it raises no error, and there is no right answer", *_call(x), RAISE)
            _check(at, probe, got, x, backward)
    except LawBroken as broken:
        return LawBroken(f"it raises no error, and {broken.headline}", *_call(x), *broken.observed, RAISE)
    return None


def _check(at: Trial, probe: Probe, got: Outputs, x: Inputs, backward: bool) -> None:
    """Raise LawBroken unless every output is within its budget.

    If no alignment is declared, either one is right.
    """
    if x.bias is not None and x.bias.dim() == 3:
        x = x.with_(bias=x.bias[None])
        if got.dbias is not None:  # which has the shape of the bias
            got = replace(got, dbias=got.dbias[None])
    try:
        _check_aligned(at, probe, got, x, backward)
    except LawBroken:
        other = other_alignment(at.impl, probe.case)
        if other is None:
            raise
        _check_aligned(replace(at, impl=other), probe, got, x, backward)


def _check_aligned(at: Trial, probe: Probe, got: Outputs, x: Inputs, backward: bool) -> None:
    want, rounded = at.want(x, backward=backward), x
    if probe.coarse:
        at = replace(at, impl=replace(at.impl, precision=Precision("tf32", "operand", "operand")))
        rounded = x.with_(**{name: tensor.bfloat16() for name, tensor in x.items() if name != "bias"})
    budget = at.budget(want, rounded, backward=backward)
    for name, tensor in got.items():
        if name in ("out", "lse") or (backward and name in GRADIENTS):
            check_near(at, name, tensor, getattr(want, name), getattr(budget, name))


def _amid(at: Trial, x: Inputs) -> tuple[Inputs, dict[str, Placed]]:
    """Return the inputs in their layout, far inside our memory, so that wrong strides stay in it.
    Also return that memory.

    Outputs are allocated by the implementation, so a write beyond one cannot be caught.
    """
    case = at.case
    scores = case.batch * case.nheads * case.seqlen_q * case.seqlen_k
    farthest = FARTHEST * max(scores, *(tensor.numel() for _, tensor in x.items()))
    margin = rounded_up(farthest, MARGIN)  # keeps the alignment that wide loads need
    flat = x.bias is not None and x.bias.dim() == 3
    handed, placed = at.caller.place(x.with_(bias=x.bias[None]) if flat else x, AROUND, margin)
    return (handed.with_(bias=handed.bias[0]) if flat else handed), placed


def _changed_by_an_error(at: Trial, placed: dict[str, Placed], x: Inputs) -> LawBroken | None:
    """Return a failure if the call that has raised an error left an input changed, else None."""
    if not at.caller.sees_memory(at.device):
        return None
    changed = [name for name, there in placed.items() if there.written()]
    if not changed:
        return None
    return LawBroken(f"it raises an error and leaves {', '.join(changed)} changed", *_call(x), RESTORE)


def _converting(impl: Implementation) -> Implementation:
    """Return the implementation, changed to convert its results to the contract's dtypes.

    For an undeclared dtype, only the values are judged.
    """

    def forward(q, k, v, **options):
        result = impl.forward(q, k, v, **options)
        if isinstance(result, (tuple, list)) and len(result) == 2:
            return _as(q.dtype, result[0]), _as(torch.float32, result[1])
        return _as(q.dtype, result)

    def backward(dout, q, k, v, out, lse, **options):
        result = impl.backward(dout, q, k, v, out, lse, **options)
        if not isinstance(result, (tuple, list)):
            return result
        inputs = (q, k, v, options.get("bias"))  # these cases have no sinks
        return tuple(_as(x.dtype, grad) if x is not None else grad for x, grad in zip(inputs, result, strict=False))

    return replace(impl, forward=forward, backward=backward if callable(impl.backward) else impl.backward)


def _as(dtype: torch.dtype, result: object) -> object:
    return result.to(dtype) if isinstance(result, torch.Tensor) else result


def _call(x: Inputs) -> list[str]:
    """Return a line with the shapes and dtypes of a call."""
    each = (f"{name} {tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}" for name, t in x.items())
    return [f"the call: {', '.join(each)}   (public layout)"]
