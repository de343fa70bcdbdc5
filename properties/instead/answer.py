"""Holds what a kernel answered in one plain call of a case, and finds what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from flash_attest import oracle
from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import GRADIENTS, Implementation
from flash_attest.impls.contract.tensors import Inputs, Outputs, tensors_of
from flash_attest.oracle.attention import Operands, operands, softmax
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import numbers_of, variant_of

# The error under a mistake must be this much smaller than the error under the right definition:
# in the root of the mean square, and in units of the budget at the worst element.
BETTER = 4.0
MANY = 16  # wrong elements
CLEARLY = 64.0  # the z of a wrong answer with fewer wrong elements than that


def same(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor: the default of Changed.back."""
    return tensor


@dataclass(frozen=True)
class Changed:
    """The inputs with which the oracle computes a wrong definition.

    The oracle takes bias and sinks from the variant. back(name, tensor): an output of the oracle in
    the shape in which the kernel returns it. It is applied to sigma, too.
    """

    x: Inputs
    variant: oracle.Variant
    back: Callable[[str, torch.Tensor], torch.Tensor] = same


@dataclass
class Predicted:
    """The outputs under one definition, by name, and a function that returns their sigma."""

    want: dict[str, torch.Tensor]
    sigma: Callable[[], dict[str, torch.Tensor]]


UNKNOWN = Predicted({}, dict)  # the outputs of a mistake that reads what nobody knows


@dataclass
class Answer:
    """The outputs of a kernel for the inputs x, all on the CPU, in the public layout.

    x: the inputs, with the numbers of a boolean mask. form_of: gives the form of the budget for a
    precision.
    """

    impl: Implementation
    case: Case
    x: Inputs
    got: dict[str, torch.Tensor]
    form_of: Callable[[Precision], str]
    _kept: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self):
        if self.x.bias is not None:
            self.x = self.x.with_(bias=numbers_of(self.x.bias))

    @property
    def variant(self) -> oracle.Variant:
        """The right definition."""
        return variant_of(self.case, self.impl.causal_alignment, self.x)

    @property
    def backward(self) -> bool:
        return any(name in GRADIENTS for name in self.got)

    @cached_property
    def plain(self) -> Changed:
        """The inputs of the right definition."""
        return Changed(self.x, self.variant)

    @cached_property
    def right(self) -> Predicted:
        """The outputs under the right definition."""
        return self.under(self.plain)

    @cached_property
    def right_sigma(self) -> dict[str, torch.Tensor]:
        """The budget of the right definition."""
        return self.right.sigma()

    @cached_property
    def _scores(self) -> dict[str, oracle.Score]:
        sigma = self.right_sigma
        return {name: self.score(name, self.right.want[name], sigma[name]) for name in self.got}

    @cached_property
    def wrong(self) -> dict[str, float]:
        """The wrong outputs, each with its worst z."""
        return {name: score.worst_z for name, score in self._scores.items() if not score.within}

    @cached_property
    def strong(self) -> bool:
        """Whether many elements are wrong, so that no other definition fits by chance."""
        return sum(int((self._scores[name].z > oracle.Z_LIMIT).sum()) for name in self.wrong) >= MANY

    @cached_property
    def dead(self) -> bool:
        """Whether out and lse are wrong only in rows that see no key, and no gradient is wrong.

        Such a row has one right result only, so too many definitions fit a wrong one.
        """
        sees = self.sees_some
        for name in self.wrong:
            bad = self._scores[name].z > oracle.Z_LIMIT
            if name in GRADIENTS or not bool(bad.any()):
                return False
            rows = bad if name == "lse" else bad.any(-1).transpose(1, 2)
            if bool((rows & sees).any()):
                return False
        return True

    @cached_property
    def telling(self) -> bool:
        """Whether wrong outputs are finite, but for lse of a row without keys, and out is not 0."""
        for name in self.wrong:
            got = self.got[name]
            finite = got.isfinite() | ~self.sees_some if name == "lse" else got.isfinite()
            if not bool(finite.all()) or (name == "out" and not bool(got.any())):
                return False
        return True

    @cached_property
    def comparable(self) -> bool:
        """Whether wrong outputs are finite, but for those of rows that seem to see no key."""
        lse = self.got.get("lse")
        silent = (lse == -torch.inf) & (self.got["out"] == 0).all(-1).transpose(1, 2) if lse is not None else None
        for name in self.wrong:
            got = self.got[name]
            finite = got.isfinite() | silent if name == "lse" and silent is not None else got.isfinite()
            if not bool(finite.all()):
                return False
        return True

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what make() returned at the first time."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    @property
    def seen(self) -> torch.Tensor:
        """bool (sq, sk): the keys that each query sees by position."""
        return self.variant.mask.visible(self.case.seqlen_q, self.case.seqlen_k)

    @cached_property
    def sees_some(self) -> torch.Tensor:
        """bool (b, h, sq): whether each query sees a key, by position and bias."""
        p, *_ = self.operands(self.plain)
        rows = slice(None)
        return (p.mask(p.products(rows), rows) > -torch.inf).any(-1)

    @property
    def group(self) -> int:
        return self.case.nheads // self.case.nheads_k

    def under(
        self,
        changed: Changed,
        precision: Precision | None = None,
        dout: torch.Tensor | None = None,
        dlse: torch.Tensor | None = None,
    ) -> Predicted:
        """Return the outputs under a changed definition, with the budget derived under it.

        dout, dlse: those of the inputs by default; dlse of another dout is None by default.
        """
        x, variant, back = changed.x, changed.variant, changed.back
        if dout is None:
            dout, dlse = x.dout, x.dlse
        gradients = {"dout": dout, "dlse": dlse} if self.backward else {}
        want = oracle.attention(x.q, x.k, x.v, variant, **gradients)
        precision = precision or self.impl.precision

        def sigma() -> dict[str, torch.Tensor]:
            form = self.form_of(precision)
            budget = oracle.budget(x.q, x.k, x.v, variant, want, **gradients, precision=precision, form=form)
            return {name: back(name, tensor).abs() for name, tensor in tensors_of(budget)}

        return Predicted({name: back(name, tensor) for name, tensor in tensors_of(want)}, sigma)

    def score(self, name: str, want: torch.Tensor, sigma: torch.Tensor, form: str = "") -> oracle.Score:
        """Return the score of an output, with the form of the declared precision by default."""
        got = self.got[name]
        dtype = torch.float32 if name == "lse" else self.case.dtype if got.dtype == torch.float64 else got.dtype
        return oracle.score(got, want, sigma, dtype, form or self.form_of(self.impl.precision))

    def operands(self, changed: Changed) -> tuple[Operands, torch.Tensor, torch.Tensor]:
        """Return the operands of the oracle under a definition, P (b, h, i, j), lse (b, h, i)."""
        if changed is self.plain and "operands" in self._kept:
            return self._kept["operands"]
        x, rows = changed.x, slice(None)
        p = operands(x.q, x.k, x.v, changed.variant, x.dout, x.dlse)
        probs, _, lse = softmax(p.mask(p.products(rows), rows), p.sinks)
        result = p, probs, lse.squeeze(-1)
        return self.kept("operands", lambda: result) if changed is self.plain else result

    def fits(self, predicted: Predicted, names: list[str], *, explains: bool = False) -> dict[str, float]:
        """Return the outputs of `names` that are within the budget of a prediction, with their z.

        A wrong output must also be much closer to the prediction than to the right value. This is
        tried first, as it needs no budget. explains: whether right outputs are of interest only
        beside a wrong one.
        """
        near = [name for name in names if name in predicted.want and self._is_nearer(name, predicted.want[name])]
        if not near or (explains and self.wrong.keys().isdisjoint(near)):
            return {}
        sigma, found = predicted.sigma(), {}
        for name in near:
            score = self.score(name, predicted.want[name], sigma[name])
            if score.within and (name not in self.wrong or self.wrong[name] > BETTER * score.worst_z):
                found[name] = score.worst_z
        return found

    def contradicts(self, predicted: Predicted) -> bool:
        """Return whether a right answer is wrong by a prediction, as far as it says something."""
        names = [name for name in self.got if name in predicted.want]
        sigma = self.right_sigma
        return any(not self.score(name, predicted.want[name], sigma[name]).within for name in names)

    def _is_nearer(self, name: str, want: torch.Tensor) -> bool:
        if name not in self.wrong:
            return True
        return BETTER * _distance(self.got[name].double(), want) <= self._distances[name]

    @cached_property
    def _distances(self) -> dict[str, float]:
        """How far each wrong output is from the right one."""
        return {name: _distance(self.got[name].double(), self.right.want[name]) for name in self.wrong}


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the root mean square of a - b, where equal infinities differ by 0."""
    return (a - b).masked_fill(a == b, 0.0).square().mean().sqrt().nan_to_num(torch.inf).item()


def answer_of(impl: Implementation, case: Case, x: Inputs, got: Outputs, form_of: Callable[[Precision], str]) -> Answer:
    """Return the Answer, with all tensors on the CPU, and a boolean bias as one of 0 and -inf."""
    x = Inputs(**{name: tensor.detach().cpu() for name, tensor in x.items()})
    x = x.with_(bias=variant_of(case, impl.causal_alignment, x).bias)
    return Answer(impl, case, x, {name: tensor.detach().cpu() for name, tensor in got.items()}, form_of)
