"""One implementation on one case: its inputs, its calls, the oracle's answer, the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch

from flash_attest import oracle
from flash_attest.impls import Implementation
from flash_attest.impls.contract.arguments import rounded_up
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.properties.calling.caller import Caller
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import mask_of, seen_of, variant_of
from flash_attest.properties.cases.fitting import MULTIPLES
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.random_tensors import RandomTensors
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import AnotherCase
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.origin import OURS, Origin
from flash_attest.properties.machine.clock import Work
from flash_attest.properties.machine.nearby import Nearby


class Expected(NamedTuple):
    """The oracle's answer, and the budget of each of its outputs."""

    want: oracle.Attention
    sigma: oracle.Budget


@dataclass
class Trial:
    """One implementation on one case: the inputs `x`, calls, and the oracle's answers.

    Each law is a function of a Trial. A law that needs more than `run`, for example its own buffers
    or a call that may raise, uses `caller`.
    """

    impl: Implementation
    case: Case
    device: str
    meter: Meter = field(default_factory=Meter)
    repeats: int = 100
    perturbations: str = ""  # perturbations of repeated calls, by name, as in --perturb (races/perturb)
    origin: Origin = OURS  # how the implementation was found
    # (device, implementation, cases, options, judged=False) -> the command that calls the
    # implementation on these cases in another process, and compares results with the definition if
    # `judged` is True. None if that is not possible.
    alone: Callable[..., list[str]] | None = None
    given: bool = False  # whether the case was given, and not drawn: laws that try a part of something then try all
    known: Known = field(default_factory=Known)  # the results that this process keeps
    part: str = ""  # of the law: the only one to try, as it is known to fail; "" for all
    write_down: Callable[[str], None] = lambda what: None  # records the next call, in case the process dies
    calls: type[Caller] = Caller  # calls the implementation, in this process or in a kernel process
    judges_state: bool = True  # see Caller

    @cached_property
    def x(self) -> Inputs:
        """The inputs of the case, in the public layout, contiguous."""
        with self.meter.clock.counts(Work.INPUTS):
            return build(self.case, self.device)

    @cached_property
    def caller(self) -> Caller:
        """The caller of the implementation, for inputs that the law places in memory itself."""
        return self.calls(self.impl, self.case, self.device, self.meter, self.known, self.judges_state)

    @cached_property
    def nearby(self) -> Nearby:
        """The device on which the oracle computes."""
        return Nearby(self.device)

    @property
    def backward(self) -> bool:
        """Whether the implementation has a backward."""
        return self.impl.backward is not None

    @property
    def form(self) -> str:
        """The form of the budget: "independent" or "linear" (oracle/budget.py).

        It depends on the regime.
        """
        return oracle.form_of(self.case.regime, self.case.dtype, self.impl.precision, self.case.softcap)

    def zeroed(self, *names: str) -> Inputs:
        """Return the inputs of the case with some of them set to 0."""
        return self.x.with_(**{name: torch.zeros_like(getattr(self.x, name)) for name in names})

    def random(self, word: str) -> RandomTensors:
        """Return random numbers of this case for a law's own tensors; each word gives others."""
        return RandomTensors(self.case, self.device, word)

    def tied(self, x: Inputs) -> Inputs:
        """Return inputs whose k has changed, with v as its first columns if the case says so."""
        return x.with_(v=x.k[..., : self.case.headdim_v]) if self.case.shared_kv else x

    def needs(self, holds: bool) -> None:
        """Unless `holds` is true, draw another case, as the law says nothing about this one."""
        if not holds:
            raise AnotherCase

    def tries(self, part: str) -> bool:
        """Return whether a law of several parts should try this one.

        Once one of them has failed, smaller cases and others like it are tried with that one alone.
        """
        return self.part in ("", part)

    def of(self, case: Case) -> Trial:
        """Return the trial of another case, for a law that compares the two."""
        return replace(self, case=case)

    def needs_supported(self, case: Case) -> None:
        """Draw another case if `case`, which the law also needs to run, is not supported."""
        if reason := unsupported(self.impl, case):
            raise AnotherCase(f"it also needs {self.case.changed_in(case)}, and {reason}")

    def cut(self, word: str, length: int, parts: Callable[[int], Iterable[Case]]) -> int:
        """Return a random position at which to cut this many rows or keys in two.

        The implementation supports all cases of parts(position). If it takes only certain lengths,
        the position is a multiple of 8, 16, ..., or 128. If no position is possible, another case
        is drawn.
        """
        n = self.random(word).number(1, length - 1)
        for multiple in MULTIPLES:
            for near in (n - n % multiple, rounded_up(n, multiple)):
                if 0 < near < length and all(unsupported(self.impl, part) is None for part in parts(near)):
                    return near
        raise AnotherCase

    def run(
        self,
        x: Inputs | None = None,
        *,
        backward: bool = False,
        wrt: tuple[str, ...] | None = None,
        **changed: bool | float | str | None,
    ) -> Outputs:
        """Call the implementation on x (public layout), stored in the case's layout.

        `changed` has new values for fields of the case in this call (softmax_scale, layout, ...).
        An exception of the implementation breaks the law. The outputs are copies: if a later call
        overwrites the outputs of an earlier one (a defect that test_memory names), a law that
        compares two calls would compare the second call with itself.
        """
        handed = self.caller.laid_out(self.x if x is None else x, **changed)
        return self.caller.copied(self.caller.call(handed, backward=backward, wrt=wrt, **changed))

    def want(self, x: Inputs | None = None, *, backward: bool = False, **changed) -> oracle.Attention:
        """Return the oracle's answer, in float64."""
        x = self.x if x is None else x
        with self.meter.clock.counts(Work.ORACLE):
            (x,) = self.nearby.bring(x)
            return self.nearby.send(
                oracle.attention(x.q, x.k, x.v, self.variant(x, **changed), **self._gradients(x, backward))
            )

    def budget(self, want: oracle.Attention, x: Inputs | None = None, *, backward: bool = False, **changed):
        """Return the error budget of each output: sigma per element (oracle/budget.py)."""
        x = self.x if x is None else x
        with self.meter.clock.counts(Work.BUDGET):
            x, want = self.nearby.bring(x, want)
            sigma = oracle.budget(
                x.q,
                x.k,
                x.v,
                self.variant(x, **changed),
                want,
                **self._gradients(x, backward),
                precision=self.impl.precision,
                form=self.form,
            )
            return self.nearby.send(sigma)

    def _gradients(self, x: Inputs, backward: bool) -> dict[str, torch.Tensor | None]:
        """Return the gradients with respect to out and lse, where they are wanted."""
        return {"dout": x.dout, "dlse": x.dlse} if backward else {}

    def expected(self, x: Inputs | None = None, *, backward: bool = False, **changed) -> Expected:
        """Return the oracle's answer with its budget."""
        want = self.want(x, backward=backward, **changed)
        return Expected(want, self.budget(want, x, backward=backward, **changed))

    def variant(self, x: Inputs | None = None, **changed) -> oracle.Variant:
        """Return what the oracle needs besides q, k and v. `changed` has new values for fields."""
        x = self.x if x is None else x
        return variant_of(self.case.but(**changed), self.impl.causal_alignment, x)

    def visible(self) -> torch.Tensor:
        """Return bool (sq, sk): which keys each query sees by position (more may be hidden)."""
        case = self.case
        return mask_of(case, self.impl.causal_alignment).visible(case.seqlen_q, case.seqlen_k, device=self.device)

    def seen(self) -> torch.Tensor:
        """Return which keys each query sees: seen_of() of features.py."""
        return seen_of(self.case, self.impl.causal_alignment, self.x)
