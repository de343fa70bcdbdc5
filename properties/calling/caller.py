"""Calls an implementation on one case: hands the inputs over, and says what a call that raises means for the law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from flash_attest.impls.contract.call import Call, Inputs, Outputs, Phase, to_layout
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.calling.raised import MESSAGE_WIDTH, device_works, judged, places
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import keywords_of
from flash_attest.properties.cases.layouts import MARGIN, Placed, lay_out, layout_of, place
from flash_attest.properties.failures import AnotherCase, LawBroken, OutOfMemory, Raises, Undecided
from flash_attest.properties.judging.known import Known
from flash_attest.properties.progress import NOW
from flash_attest.properties.state.watch import Watch

MOST_REFUSALS = 20  # errors that a law allows; if no case came without one by then, no further one is tried


@dataclass
class Caller:
    """Calls one implementation on one case, in this process.

    A law gets it as `trial.caller`. Where the implementation runs in a kernel process, whoever makes the trial hands in
    another class (runner/untrusted/caller.py).
    """

    impl: Implementation
    case: Case
    device: str
    meter: Meter = field(default_factory=Meter)
    known: Known = field(default_factory=Known)  # has the changed state that the contract check has named already
    judges_state: bool = True  # whether state that a call leaves changed breaks the law; False: the maker looks at it
    watch: Watch = field(default_factory=Watch)  # records the state that calls leave changed (properties/state)

    same_process: ClassVar[bool] = True  # whether the implementation shares memory with the law

    def laid_out(self, x: Inputs, layout: str | None = None) -> Inputs:
        """The inputs as `call` takes them: in the implementation's layout, stored in `layout`, or the case's."""
        layout = layout or self.case.layout
        return Inputs(**{name: lay_out(t, layout_of(name, layout)) for name, t in self.stored(x).items()})

    def place(
        self, x: Inputs, fill: float, margin: int = MARGIN, away_from: Inputs | None = None
    ) -> tuple[Inputs, dict[str, Placed]]:
        """The inputs inside buffers filled with `fill`, ready for `call`, and the buffers.

        away_from: inputs of the same names; each address has another remainder by 128 than there.
        """
        placed = {}
        for name, tensor in x.items():
            other = None if away_from is None else getattr(away_from, name)
            layout = layout_of(name, self.case.layout)
            placed[name] = place(self.as_stored(name, tensor), layout, fill, margin, other)
        return Inputs(**{name: p.tensor for name, p in placed.items()}), placed

    def as_stored(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """An input in the layout that the implementation declares; bias has one layout for all."""
        return tensor if name == "bias" else to_layout(self.impl, tensor)

    def stored(self, x: Inputs) -> Inputs:
        """Inputs in the public layout -> the same, contiguous, in the layout that the implementation declares."""
        return Inputs(**{name: self.as_stored(name, tensor) for name, tensor in x.items()})

    def call(
        self,
        handed: Inputs,
        *,
        backward: bool = False,
        wrt: tuple[str, ...] | None = None,
        then: Callable[[Outputs], Outputs] = lambda outputs: outputs,
        between: Callable[[], object] = lambda: None,
        twice: bool = False,
        **changed,
    ) -> Outputs:
        """Call the implementation on inputs that are already in its layout; `then` sees the outputs before a GPU is done.

        between: called between forward and backward, for another call there. twice: backward="autograd" runs twice on one
        graph, and the outputs are those of the second time.

        Raises Undecided if memory runs out, or a kernel uses what the emulator does not cover.
        """
        before = places(handed)
        made = Call(self.impl, handed, backward, wrt, **keywords_of(self.case.but(**changed)))
        made.enters, made.around = NOW.enters, self.watch
        of_another: list[Exception] = []

        def aside() -> None:
            try:
                between()
            except (LawBroken, Undecided) as error:  # of the other call, whose words they are
                of_another.append(error)
                raise

        made.between, made.twice = aside, twice
        try:
            with self._judged(lambda: made.phase):
                got = then(made.run())
                if self.device == "cuda":
                    torch.cuda.synchronize()
        except (LawBroken, Undecided):
            if of_another:
                raise of_another[0] from None
            raise
        if resized := [name for name, place in places(handed).items() if place != before[name]]:
            raise LawBroken(f"{made.phase.value} resizes {', '.join(resized)}: inputs should come back as they were")
        if self.judges_state and (changed := self.known.unnamed(self.impl.name, self.watch.changes)):
            raise LawBroken(*changed)
        return got

    @contextmanager
    def may_begin_again(self) -> Iterator[None]:
        """If memory runs out in this block, the case is restarted, unless the call has changed global state.

        That state has been restored, and the next call may not change it again: a restart would hide the change.
        """
        try:
            yield
        except OutOfMemory as error:
            if self.known.unnamed(self.impl.name, self.watch.changes):
                raise Undecided(str(error), error.why) from None
            raise

    def launch(self, handed: Inputs, *, backward: bool = False) -> Outputs:
        """`call` for repeats of one call: does not wait for a GPU, nor looks at what else the call changes."""
        made = Call(self.impl, handed, backward, None, **keywords_of(self.case))
        made.enters = NOW.enters
        with self._judged(lambda: made.phase):
            return made.run()

    @contextmanager
    def waited_for(self, backward: bool = False) -> Iterator[None]:
        """Around calls of `launch`: an error that a GPU finds after one has returned is the implementation's, too."""
        phase = Phase.BACKWARD if backward else Phase.FORWARD
        try:
            yield
        except RuntimeError:
            if self.device == "cuda":  # what reads results waits for them: is it an error of the launches?
                with self._judged(lambda: phase):
                    torch.cuda.synchronize()
            raise
        if self.device == "cuda":
            with self._judged(lambda: phase):
                torch.cuda.synchronize()

    def _judged(self, phase: Callable[[], Phase]) -> AbstractContextManager[None]:
        """A block in which the implementation works; `phase` says what it is doing, should it raise."""
        return judged(phase, self.case, self.device, self.meter.clock)

    @contextmanager
    def looking_again(self) -> Iterator[Callable[[], None]]:
        """In this block, look_again() has outputs that were returned in it show what has been written to them since.

        Here they are the implementation's own memory, so there is nothing to do.
        """
        yield lambda: None

    def answer(self, handed: Inputs, *, backward: bool = False, twice: bool = False) -> Outputs | None:
        """`call`, or None where it raises or runs out of memory: the note beside the verdict then counts the error.

        An error after which the device no longer works is raised.
        """
        try:
            return self.call(handed, backward=backward, twice=twice)
        except (Raises, Undecided) as error:
            if not self.device_works():
                raise
            self.meter.refusals += 1
            self.meter.note = (
                f"errors that this law allows: {self.meter.refusals}, such as: {str(error)[:MESSAGE_WIDTH]}"
            )
            return None

    def needs_answers(self) -> None:
        """Try no further case where `answer` has given errors only."""
        if self.meter.cases == 0 and self.meter.refusals >= MOST_REFUSALS:
            raise AnotherCase

    def device_works(self) -> bool:
        """False after an illegal access on a GPU: this process can launch nothing more."""
        return device_works(self.device)
