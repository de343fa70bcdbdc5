"""The only module that calls implementations.

Inputs are passed in the implementation's form, layout and order of heads; outputs are returned
dense, in the public layout and the suite's order. There, lse is (batch, nheads, seqlen_q), in
natural log, and every other tensor is (batch, seqlen, nheads, headdim).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any

import torch

from flash_attest.impls.contract.heads import order_of, usual
from flash_attest.impls.contract.record import ContractError, Implementation
from flash_attest.impls.contract.returned import plain, problems_of
from flash_attest.impls.contract.supports import APPENDED, FORM_KEYWORDS, KEYWORDS, Supports
from flash_attest.impls.contract.tensors import Inputs, Outputs, from_layout
from flash_attest.texts import cut, type_name

GRADIENT_OF = {"sinks": "dsink"}  # the others have the name of their input, with a d before it
INPUT_OF = {gradient: name for name, gradient in GRADIENT_OF.items()}
IN_LAYOUT = ("out", "dq", "dk", "dv")  # outputs whose dimensions have the implementation's order
MOST_DESCRIBED, LONGEST_DESCRIPTION = 8, 500  # items of a result, and characters, in a message


def keywords(supports: Supports, **options: Any) -> dict[str, Any]:
    """Return the keywords that `supports` declares, with their values or defaults.

    Raises TypeError for an option that no implementation takes.
    """
    if unknown := sorted(set(options) - set(KEYWORDS)):
        raise TypeError(f"{', '.join(unknown)}: no keyword of an implementation; those are {', '.join(KEYWORDS)}")
    return {
        name: options.get(name, keyword.default) for name, keyword in KEYWORDS.items() if keyword.declared(supports)
    }


def form_keywords(supports: Supports, x: Inputs) -> dict[str, Any]:
    """Return the keywords that a call of this form gets besides: lengths, tables, new keys."""
    plan = {} if x.plan is None else x.plan.numbers
    names = FORM_KEYWORDS[supports.form] + (APPENDED if supports.append else ())
    return {name: plan[name] if name in plan else getattr(x, name) for name in names}


def gives_dbias(impl: Implementation, x: Inputs) -> bool:
    """Return whether a backward on these inputs also returns dbias. A boolean mask has none."""
    return impl.supports.bias_grad and x.bias is not None and x.bias.dtype != torch.bool


def gradients_of(impl: Implementation, x: Inputs) -> dict[str, str]:
    """Return gradient -> its input, for each gradient that a backward on these inputs returns."""
    names = {"dq": "q", "dk": "k", "dv": "v"}
    if gives_dbias(impl, x):
        names["dbias"] = "bias"
    if impl.supports.sink_grad and x.sinks is not None:
        names["dsink"] = "sinks"
    return names


class Phase(Enum):
    """The phases of a call."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Call:
    """One call of an implementation. `phase` is the phase it reached, even if it raised.

    x: inputs in the implementation's layout.
    backward: whether to compute gradients.
    wrt: the inputs that require a gradient (for backward="autograd"); None means every input that
    can have one.
    options: causal, softmax_scale, ... (KEYWORDS), but for the tensors.
    as_returned: whether outputs stay in the implementation's form, for `public_outputs`.
    """

    def __init__(
        self, impl: Implementation, x: Inputs, backward: bool = False, wrt: Iterable[str] | None = None, **options: Any
    ):
        self.impl, self.x, self.backward, self.options = impl, x, backward, options
        self.phase = Phase.FORWARD
        self.enters: Callable[[str], None] = lambda phase: None  # called at the start of each phase, with its name
        self.between: Callable[[], None] = lambda: None  # called between the two phases
        self.as_returned = False
        self.twice = False  # with autograd: run backward twice on one graph, and return the second run's gradients
        # phase -> the context manager in which the implementation's code runs
        self.around: Callable[[str], AbstractContextManager] = nullcontext
        self.wrt = tuple(gradients_of(impl, x).values() if wrt is None else wrt)

    def run(self) -> Outputs:
        """Run the call. Return outputs in the public layout, with gradients if `backward` is set.

        Raises ContractError if a result has the wrong count, shape, dtype or device.
        """
        impl, x = self.impl, self.x
        # Forward. For autograd, its inputs are leaves that require grad.
        self.enters(self.phase.value)
        differentiate = self.backward and impl.backward == "autograd"
        leaves = dict(q=x.q, k=x.k, v=x.v, bias=x.bias, sinks=x.sinks)
        if differentiate:
            leaves = {
                name: tensor if tensor is None else tensor.detach().requires_grad_(name in self.wrt)
                for name, tensor in leaves.items()
            }
        operands = (leaves["q"], leaves["k"], leaves["v"])
        if impl.supports.form == "parts":
            operands = (x.out_parts, x.lse_parts)
        shown = {"block_mask": x.block_mask, "kv_indices": x.kv_indices}
        given = keywords(impl.supports, bias=leaves["bias"], sinks=leaves["sinks"], **shown, **self.options)
        given |= form_keywords(impl.supports, x)
        with torch.set_grad_enabled(differentiate):
            with self.around(self.phase.value):
                returned = impl.forward(*operands, **given)
            returned = _forward_result(impl, returned)
            trains = impl.backward is not None
            out, lse = returned
            out, lse = plain("out", out, trains=trains), None if lse is None else plain("lse", lse, trains=trains)
        _check_forward(impl, x, out, lse)
        # Backward: by autograd, or by the implementation's own function.
        if self.backward:
            self.between()
            self.phase = Phase.BACKWARD
            self.enters(self.phase.value)
        gradients: dict[str, torch.Tensor] = {}
        if differentiate:
            with self.around(self.phase.value):
                dlse = _dlse(impl, x)
                of = {"out": (out, x.dout)} if dlse is None else {"out": (out, x.dout), "lse": (lse, dlse)}
                gradients = _autograd(of, leaves, self.wrt, self.twice)
        elif self.backward:
            with torch.no_grad():
                if impl.supports.lse_grad:
                    given["dlse"] = _dlse(impl, x)
                with self.around(self.phase.value):
                    gradients = impl.backward(x.dout, *operands, *returned, **given)
                gradients = _backward_result(impl, x, gradients)
        # What is tied to a returned tensor object ends here, as all outputs are detached.
        gradients = {name: plain(name, grad, trains=True).detach() for name, grad in gradients.items()}
        _check_gradients(x, gradients)
        outputs = Outputs(out=out.detach(), lse=None if lse is None else lse.detach(), **gradients)
        return outputs if self.as_returned else public_outputs(impl, x, outputs)


def run(
    impl: Implementation, x: Inputs, *, backward: bool = False, wrt: Iterable[str] | None = None, **options: Any
) -> Outputs:
    """Run one call. Inputs are in the implementation's layout, outputs in the public one."""
    return Call(impl, x, backward, wrt, **options).run()


def _forward_result(impl: Implementation, result: object) -> tuple[torch.Tensor, torch.Tensor | None]:
    if isinstance(result, (tuple, list)) and len(result) == 2 and all(isinstance(t, torch.Tensor) for t in result):
        if impl.lse is None:
            raise ContractError('forward returns (out, lse), but lse=None is declared: declare lse="natural" or "log2"')
        return result[0], result[1]
    if isinstance(result, torch.Tensor):
        if impl.lse is not None:
            raise ContractError(f"forward returns out alone, but lse={impl.lse!r} is declared: declare lse=None")
        return result, None
    raise ContractError(f"forward returns {_describe(result)}: should be out, or (out, lse)")


def public_outputs(impl: Implementation, x: Inputs, outputs: Outputs) -> Outputs:
    """Return outputs in the public form from those that a call on x returned.

    Some are views of what was returned, others copies: packed rows, heads in another order, lse in
    another base.
    """
    public = {name: from_layout(impl, tensor) for name, tensor in outputs.items() if name in IN_LAYOUT}
    if outputs.lse is not None:
        public["lse"] = _public_lse(impl, x, outputs.lse)
    outputs = Outputs(**dict(outputs.items()) | public)
    return usual(_order(impl, x), outputs if x.plan is None else x.plan.unpack(outputs))


def _public_lse(impl: Implementation, x: Inputs, lse: torch.Tensor) -> torch.Tensor:
    """Return lse in natural log, with the sink."""
    if impl.lse == "log2":
        lse = lse.double() * math.log(2)
    if x.sinks is not None and not impl.sink_in_lse:
        lse = torch.logaddexp(lse.double(), x.sinks.double()[:, None])
    return lse


def _order(impl: Implementation, x: Inputs) -> torch.Tensor | None:
    """Return the order of the query heads of a call; None if it is the suite's."""
    if x.q is None or impl.gqa_order == "blocks":  # a call may have resized k
        return None
    return order_of(impl, *(from_layout(impl, tensor).shape[-2] for tensor in (x.q, x.k)))


def _dlse(impl: Implementation, x: Inputs) -> torch.Tensor | None:
    """Return the gradient with respect to the lse that forward returns, in its base."""
    return x.dlse if x.dlse is None or impl.lse != "log2" else x.dlse * math.log(2)


def _backward_result(impl: Implementation, x: Inputs, grads: object) -> dict[str, torch.Tensor]:
    """Return the gradients by name. Without a bias or sinks, their gradients may be left out, or be
    anything.
    """
    wanted = tuple(gradients_of(impl, x))
    declared = ("dq", "dk", "dv", *(("dsink",) if impl.supports.sink_grad else ()))
    orders = (wanted, declared, (*declared[:3], "dbias", *declared[3:]))
    items = grads if isinstance(grads, (tuple, list)) else ()
    names = next((names for names in orders if len(names) == len(items)), ())
    result = {name: grad for name, grad in zip(names, items, strict=False) if name in wanted}
    if tuple(result) != wanted or not all(isinstance(grad, torch.Tensor) for grad in result.values()):
        raise ContractError(f"backward returns {_describe(grads)}: should be ({', '.join(wanted)})")
    return result


def _autograd(
    outputs: dict[str, tuple[torch.Tensor, torch.Tensor]],
    leaves: dict[str, torch.Tensor],
    wrt: tuple[str, ...],
    twice: bool,
) -> dict[str, torch.Tensor]:
    """outputs: name -> the output, and the gradient with respect to it."""
    if not wrt:
        return {}
    out = outputs["out"][0]
    for name, (output, _) in outputs.items():
        depends = name == "out" or set(wrt) != {"v"}  # lse does not depend on v
        if depends and not output.requires_grad and output.numel() and leaves["k"].numel():
            instead = "backward=None" if name == "out" else "supports.lse_grad=False"
            raise ContractError(
                f'{name} does not require grad, so backward="autograd" has nothing to differentiate: '
                f"use a torch.autograd.Function, or declare {instead}"
            )
    grads = [None] * len(wrt)
    differentiable = [pair for pair in outputs.values() if pair[0].requires_grad]
    if differentiable:
        asked_for = [leaves[name] for name in wrt]
        of, by = zip(*differentiable, strict=True)
        if twice:
            torch.autograd.grad(of, asked_for, by, allow_unused=True, retain_graph=True)
        grads = torch.autograd.grad(of, asked_for, by, allow_unused=True)
    empty = out.numel() == 0 or leaves["k"].numel() == 0  # out depends on no input, so a gradient of None means 0
    grads = [torch.zeros_like(leaves[name]) if g is None and empty else g for name, g in zip(wrt, grads, strict=True)]
    missing = [name for name, grad in zip(wrt, grads, strict=True) if grad is None]
    if missing:
        raise ContractError(f"autograd gives no gradient for {', '.join(missing)}: out does not depend on it")
    return {GRADIENT_OF.get(name, f"d{name}"): grad for name, grad in zip(wrt, grads, strict=True)}


def _check_forward(impl: Implementation, x: Inputs, out: torch.Tensor, lse: torch.Tensor | None) -> None:
    like = x.dout if x.q is None else x.q
    problems = problems_of("out", out, x.dout.shape, like.dtype, like.device)
    if x.dout.dim() == 4 and x.dout.shape != out.shape == x.dout.transpose(1, 2).shape:
        other = "bshd" if impl.layout == "bhsd" else "bhsd"
        problems[0] += f"; this is layout {other!r}: declare layout={other!r} if q, k, v are taken in it too"
    if lse is not None:
        *batch, rows, nheads, _ = from_layout(impl, x.dout).shape
        problems += problems_of("lse", lse, (*batch, nheads, rows), torch.float32, like.device)
    if problems:
        raise ContractError(problems)


def _check_gradients(x: Inputs, results: dict[str, torch.Tensor]) -> None:
    problems = []
    for name, grad in results.items():
        like = getattr(x, INPUT_OF.get(name, name[1:]))
        problems += problems_of(name, grad, like.shape, like.dtype, like.device)
    if problems:
        raise ContractError(problems)


def _describe(value: object) -> str:
    if isinstance(value, (tuple, list)):
        items = [_describe(item) for item in value[:MOST_DESCRIBED]] + ["..."] * (len(value) > MOST_DESCRIBED)
        return cut(f"{type_name(value)} of {len(value)} ({', '.join(items)})", LONGEST_DESCRIPTION)
    if isinstance(value, torch.Tensor):
        return f"tensor {tuple(value.shape)}"
    return type_name(value)
