"""The data that all steps share in judging one law on one implementation."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace

from hypothesis.errors import Unsatisfiable

from flash_attest.emulator import devices
from flash_attest.impls.contract.record import Implementation, KnownFailure
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case, parse_case
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.kinds import MOST_CASES
from flash_attest.properties.cases.limits import Limits
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.cases.support import missing, unsupported
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.judging.context import blaming_calls, check_context
from flash_attest.properties.judging.origin import Origin
from flash_attest.properties.judging.plan import CALLED_WITH, Plan
from flash_attest.properties.law import Law
from flash_attest.properties.machine.gpus import has_gpu, visible_gpus
from flash_attest.properties.trial import Trial


@dataclass(frozen=True)
class Judgement:
    """A law, an implementation, how to judge it, and the cost so far."""

    law: Law
    impl: Implementation
    plan: Plan = field(default_factory=Plan)
    meter: Meter = field(default_factory=Meter)
    part: str = ""  # of the law, which is known to fail: its trials try this one alone

    @property
    def test(self) -> str:
        """The id of the law's test: properties/test_causal.py::test_name[impl]."""
        return self.law.test_id(self.impl.name)

    @property
    def missing(self) -> str | None:
        """The first need of the law that the implementation or its caller lacks, or None."""
        caller, device = self.plan.caller_of(self.impl), self.law.judged_on(self.plan.device)
        return missing(
            self.impl, self.law.needs, same_process=caller.same_process, sees_memory=caller.sees_memory(device)
        )

    @property
    def device(self) -> str:
        """The device on which the law is judged. Every machine with a GPU also has a CPU."""
        return "cpu" if self.law.device == "cpu" and not self.missing else self.plan.device

    @property
    def known_failure(self) -> KnownFailure:
        """The law's known failure there; its `why` is "" if nothing is known."""
        return self.impl.known_failure(self.law.name, self.device)

    @property
    def drawing(self) -> Drawing:
        """The cases to draw for this law. Raises Unsatisfiable if its lengths exceed the limits."""
        law, impl, plan = self.law, self.impl, self.plan
        if not _has_room(law.draws, Limits.on(plan.device, impl.share_on(plan.device), plan.small)):
            raise Unsatisfiable("the law wants longer sequences than the limits allow")
        number = zlib.crc32(f"{plan.seed} {law.chapter}.{law.name}.{impl.name}".encode())
        few = impl.compiles and plan.examples <= MOST_CASES
        strategy = attention_cases(impl, plan.device, law.draws, small=plan.small, kinds=plan.seed if few else None)
        return Drawing(strategy, number, 1 if law.once else plan.cases_for(impl, law.share), law.once)

    def takes(self, case: Case) -> bool:
        """Return whether the implementation supports the case and the law wants it."""
        return self.unsupported(case) is None and self.law.draws.excludes(case) is None

    def unsupported(self, case: Case) -> str | None:
        """Return why the implementation does not support the case; None if it does. `accepts` does
        not decide about the case of the law's known failure.
        """
        return unsupported(self.impl, case, asks_accepts=case != self.known_case)

    @property
    def known_case(self) -> Case | None:
        """The case of the law's known failure, or None."""
        text = self.known_failure.case
        return parse_case(text) if text else None

    @property
    def known_is_left_out(self) -> bool:
        """Whether `accepts` refuses the case of the law's known failure, as it may leave out all
        that is known to be wrong. Then the law holds in all other cases.
        """
        return self.known_case is not None and unsupported(self.impl, self.known_case) is not None

    def drawing_from(self, draws: Draws) -> Judgement:
        """Return the same judgement with other conditions on the drawn cases."""
        return replace(self, law=replace(self.law, draws=draws))

    def trial(self, case: Case) -> Trial:
        """Return the trial of a case. Its calls are counted."""
        trial = self._trial(case, self.meter)
        trial.write_down = lambda what: self.write_down(f"{case}{CALLED_WITH}{what}")
        return trial

    def _trial(self, case: Case, meter: Meter) -> Trial:
        trial = self.plan.trial(self.impl, case, meter)
        trial.part = self.part
        return trial

    def of_failure(self, broken: LawBroken) -> Judgement:
        """Return the same judgement for further cases of a failure: they try what failed there."""
        return replace(self, part=broken.part)

    def write_down(self, text: object) -> None:
        """Record the case that is about to run, in case the process dies."""
        self.plan.write_down(f"{self.test} {text}")

    def hold(self, trial: Trial) -> None:
        """Run the law on a trial. Raises as Law.hold does, or what `blaming_calls` raises."""
        with blaming_calls(trial, self.test):
            self.law.hold(trial)

    def hold_aside(self, case: Case) -> None:
        """Run the law on a case that is not counted. Raises as Law.hold does, or ContextLost."""
        self.write_down(case)
        # What the law has found out about the process is still true.
        trial = self._trial(case, Meter(depends_on_others=self.meter.depends_on_others))
        try:
            self.hold(trial)
        except LawBroken as broken:
            self.check_context(trial, broken)
            raise

    def check_context(self, trial: Trial, broken: LawBroken) -> None:
        """Raise ContextLost if no kernel can be launched after this failure."""
        check_context(trial, broken, self.test)

    def replay(self, case: Case, *, timed_out: bool = False) -> str:
        """Return the command that judges this case alone, under the same perturbations.

        timed_out: whether the limit of a call matters, so that the command names it.
        """
        perturbations = self.plan.perturbations if self.law.bug == "races" else ""
        limit = self.plan.case_timeout if timed_out else 0.0
        return replay_of(self.plan.origin, self.test, str(case), perturbations, limit)


def _has_room(draws: Draws, limits: Limits) -> bool:
    """Return whether the shortest sequences that a law wants are within the limits. If not,
    Hypothesis would reject hundreds of cases, which takes half a second.
    """
    shortest = draws.seqlen_q[0] * draws.seqlen_k[0]
    return not draws.limited or shortest <= max(limits.elements * limits.factor(draws), limits.seqlen**2)


def replay_of(origin: Origin, test: str, case: str = "", perturbations: str = "", limit: float = 0.0) -> str:
    """Return the command that judges one law again here. test: its id, from Law.test_id. limit: the
    seconds of a call, for a call that did not return; else 0.
    """
    gpus = visible_gpus()
    device = "cpu" if has_gpu() and not gpus else ""  # the replay must hide the GPU, too (machine/gpus.py)
    emulated = "" if gpus or devices.target() == devices.DEFAULT else str(devices.target())
    return origin.replay(test, case, perturbations, device, emulated, f"{limit:g}" if limit else "")
