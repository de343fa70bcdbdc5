"""Searches for a case that breaks a law, among cases from Hypothesis or the one given case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from hypothesis.errors import FlakyFailure, FlakyReplay, Unsatisfiable

from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import AnotherCase, LawBroken, OutOfMemory, Reason, Undecided, WrongAlready
from flash_attest.properties.judging.at_hand import some
from flash_attest.properties.judging.collected import Collected, Enough, size
from flash_attest.properties.judging.context import blame
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import REPEATS
from flash_attest.properties.judging.shrink import smallest
from flash_attest.properties.machine.clock import Work
from flash_attest.properties.machine.gpu_memory import when_memory_suffices
from flash_attest.properties.progress import NOW
from flash_attest.properties.trial import Trial


@dataclass(frozen=True)
class Found:
    """The result of a search: the smallest failure and its case, or neither if the law holds.

    flaky: the case failed once and held once. failures, right: some of the cases that failed, and
    those that held, while searching and shrinking.
    """

    broken: LawBroken | None = None
    case: Case | None = None
    flaky: bool = False
    failures: tuple[tuple[LawBroken, Case], ...] = ()
    right: tuple[Case, ...] = ()


# Returns the result of the search if the first failure has a known cause (repeats.py), so that it
# is not shrunk; otherwise None.
RepeatOf = Callable[[Judgement, LawBroken, Case], Found | None]


class _Repeated(BaseException):
    """Raised if the first failure has a known cause. Hypothesis stops, as with `_Over`."""

    def __init__(self, found: Found):
        super().__init__()
        self.found = found


class _Over(BaseException):
    """Raised if the time is over. It is not an Exception, so Hypothesis stops."""


class Search:
    """Runs a law on drawn cases, or on the given one, and stores the result of each."""

    def __init__(self, judgement: Judgement, repeat_of: RepeatOf | None = None):
        self.judgement, self.repeat_of = judgement, repeat_of
        self.law, self.plan, self.meter = judgement.law, judgement.plan, judgement.meter
        self.failures: list[tuple[LawBroken, Case]] = []
        self.undecided: list[Undecided] = []
        self.wrong_already: list[WrongAlready] = []  # one for each case that the law does not judge
        self.too_large: list[Undecided] = []  # one for each case that is too large for this GPU
        self.held: dict[Case, None] = {}  # in the order in which they held
        self.collected = Collected()
        self.beside_others: tuple[LawBroken, Case] | None = None  # the failure of law.together, and the last case

    def run(self) -> Found:
        """Return the smallest failure. Raises Undecided, Unsatisfiable or ContextLost."""
        try:
            found = self._run()
        except (AnotherCase, Unsatisfiable):
            if self.too_large:
                raise self._needs_a_larger_gpu() from None
            raise
        if found.broken is None and self.wrong_already:
            raise self.wrong_already[0]
        if found.broken is None and self.too_large:
            raise self._needs_a_larger_gpu()
        return replace(found, failures=tuple(some(self.failures)), right=tuple(self.held))

    def _run(self) -> Found:
        try:
            if self.plan.case is not None:
                return self._given(self.plan.case)
            drawing = self.judgement.drawing
            if self.law.together:
                self.beside_others = self._look_together(drawing.cases)
            hold = self.collect if self.law.collects else self.holds
            if (left := drawing.examples - self._hold_chosen(hold)) > 0:
                replace(drawing, examples=left).hold_each(hold)
        except Enough:
            return self.conclude()
        except _Repeated as repeated:
            return repeated.found
        except _Over:
            if self.beside_others:
                return self.conclude()
            judged = f"{self.meter.cases} case{'s' * (self.meter.cases != 1)} judged by then"
            right = "" if self.wrong_already else ", all right"
            raise Undecided(f"{self.plan.until[1]}: {judged}{right}", Reason.TIME_LIMIT) from None
        except LawBroken as broken:
            found = self.conclude(broken)
            found.broken.observed += self.collected.lines
            return found
        except (FlakyFailure, FlakyReplay) as flaky:  # Hypothesis ran a case again, with another result
            return self._conclude_flaky(flaky)
        return self.conclude()

    def _hold_chosen(self, hold: Callable[[Case], None]) -> int:
        """Call hold on the cases that the law chooses. Returns how many the law says something
        about.
        """
        number = 0
        for case in self.law.chosen(self.judgement.impl):
            if self.judgement.takes(case):
                with suppress(AnotherCase):
                    hold(case)
                    number += 1
        return number

    def holds(self, case: Case) -> None:
        """Run the law on a case. Raises LawBroken, AnotherCase, Undecided or ContextLost."""
        if self.plan.until and not self.failures and time.monotonic() > self.plan.until[0]:
            raise _Over
        if str(case) in self.plan.lost:  # counts as right, so that later draws stay the same
            return
        if self.undecided and self.undecided[-1].why is Reason.GPU_MEMORY:  # other cases would not fit, either
            raise self.undecided[-1]
        unclear, too_large = None, False
        try:
            with self.meter.clock.counts(Work.LAW):
                repeats = bool(self.undecided or self.failures or self.too_large)  # or this is a step of shrinking
                when_memory_suffices(
                    self.plan.device, self.plan.known, lambda: self._holds_now(case), waits=not repeats
                )
        except Undecided as reason:
            too_large = isinstance(reason, OutOfMemory) and (reason.why is Reason.GPU_MEMORY or bool(self.too_large))
            unclear = Undecided(str(reason), Reason.GPU_MEMORY if too_large else reason.why)
        if too_large:  # the law goes on with other cases
            self.too_large.append(unclear)
            raise AnotherCase
        if unclear:  # raise a new exception: Hypothesis stores it, and the frames of the first one hold tensors
            self.undecided.append(unclear)
            raise unclear

    def collect(self, case: Case) -> None:
        """Run the law on a case, as `holds` does, but collect the findings of all cases.

        Raises Enough if no more cases are needed.
        """
        try:
            self.collected.draws(case, self.holds, self.plan.goes_on)
        except Undecided:
            if not self.collected.items and self.beside_others is None:  # findings count even if a case is undecided
                raise
            raise Enough from None

    def conclude(self, broken: LawBroken | None = None) -> Found:
        """Return the result after the last case. broken: the failure that ended the search."""
        if broken is not None:
            if any(case in self.held for _, case in self.failures):
                return _not_on_every_run(*self._unsteady())
            return self._smallest(broken, next(c for b, c in reversed(self.failures) if b is broken))
        if self.collected.items:
            self.collected.shrink(self.judgement, self.holds)
            return Found(*self.collected.broken)
        if self.beside_others:  # no case showed this failure by itself
            return _not_on_every_run(*self.beside_others)
        return Found()

    def _conclude_flaky(self, flaky: FlakyFailure | FlakyReplay) -> Found:
        """Return the result of a search in which one case had different results in two runs.

        If no case has broken the law, raises what stopped one of the two runs.
        """
        if not self.failures:
            if self.undecided:  # memory sufficed in only one run of the case
                raise self.undecided[0] from None
            raise flaky.exceptions[0] if isinstance(flaky, FlakyFailure) else flaky
        broken, case = self._unsteady()
        if case not in self.held and self._fails_again(case):  # it fails each time, but at different lines of the law
            return self._smallest(broken, case)
        return _not_on_every_run(broken, case)

    def _needs_a_larger_gpu(self) -> Undecided:
        """Return what says which cases were too large, and that the law holds in the others."""
        n, others = len(self.too_large), self.meter.cases
        held = f"; {others} other{'s hold' if others != 1 else ' holds'}" if others else ""
        return Undecided(
            f"{n} case{'s need' if n != 1 else ' needs'} a larger GPU: {self.too_large[0]}{held}", Reason.GPU_MEMORY
        )

    def _given(self, case: Case) -> Found:
        try:
            self.holds(case)
        except LawBroken as broken:
            return Found(broken, case)
        return Found()

    def _holds_now(self, case: Case) -> None:
        self.judgement.write_down(case)
        trial = self.judgement.trial(case)
        before = self.meter.counted()
        self.meter.begins()
        try:
            with trial.caller.may_begin_again():
                self.judgement.hold(trial)
            self.meter.judged(case)
            NOW.did(self.meter.cases)
            self.held[case] = None
        except WrongAlready as wrong:
            self.wrong_already.append(WrongAlready(str(wrong)))  # without the frames, which hold tensors
        except LawBroken as broken:
            self.meter.judged(case)
            self.failures.append((broken, case))
            self._narrow(broken)
            NOW.found(str(case), broken.headline)
            self.meter.clock.from_now_on(Work.SHRINKING)
            self.judgement.check_context(trial, broken)
            if repeated := self._repeated(broken, case):
                raise _Repeated(repeated) from None
            raise
        except OutOfMemory:
            self.meter.forget_since(before)
            raise

    def _narrow(self, broken: LawBroken) -> None:
        """Try only the part of the law that failed first from now on, unless its findings form a
        set.
        """
        if len(self.failures) == 1 and not self.law.collects:
            self.judgement = self.judgement.of_failure(broken)

    def _repeated(self, broken: LawBroken, case: Case) -> Found | None:
        """Return the first failure if its cause is known; None for any other failure."""
        if self.repeat_of is None or len(self.failures) > 1 or self.beside_others:
            return None
        return self.repeat_of(self.judgement, broken, case)

    def _smallest(self, broken: LawBroken, case: Case) -> Found:
        if self.judgement.law.once:  # the case is the simplest, and its steps take long
            return Found(broken, case)
        return Found(*smallest(self.judgement, case, broken, self.holds))

    def _unsteady(self) -> tuple[LawBroken, Case]:
        """Return the smallest failure with a case that also held, or else the smallest failure."""
        return min(self.failures, key=lambda failure: (failure[1] not in self.held, size(failure[1])))

    def _fails_again(self, case: Case) -> bool:
        """Return whether the law fails in every repeat."""
        for _ in range(REPEATS):
            try:
                self.holds(case)
                return False
            except LawBroken:
                continue
            except (AnotherCase, Undecided):
                return False
        return True

    def _look_together(self, cases: list[Case]) -> tuple[LawBroken, Case] | None:
        """Run law.together on all cases. If it fails, return the failure and the last case."""
        begun: list[Trial] = []

        def trials() -> Iterator[Trial]:
            for case in cases:
                if str(case) not in self.plan.lost:
                    self.judgement.write_down(case)
                    begun.append(self.judgement.trial(case))
                    self.plan.known.test = self.judgement.test
                    yield begun[-1]

        with self.meter.clock.counts(Work.LAW):
            try:
                self.law.look_together(trials())
            except LawBroken as broken:
                if not begun[-1].caller.device_works():  # this process cannot judge another case
                    self.meter.judged(begun[-1].case)
                    NOW.found(str(begun[-1].case), broken.headline)
                    self.judgement.check_context(begun[-1], broken)
                return broken, begun[-1].case
            except Undecided:  # each case is then judged by itself
                pass
            except Exception as error:
                blame(self.plan.known, self.plan.device, error)
                raise
        return None


def has_cases(judgement: Judgement) -> bool:
    """Return whether any case can be drawn. Nothing is launched."""
    try:
        return bool(judgement.drawing.cases)
    except Unsatisfiable:
        return False


def _not_on_every_run(broken: LawBroken, case: Case) -> Found:
    """Return the failure of a case that failed once and held once.

    That it is flaky is itself the finding, so no further attempts are made to reproduce it.
    """
    broken.headline = f"not on every run: {broken.headline}"
    return Found(broken, case, flaky=True)
