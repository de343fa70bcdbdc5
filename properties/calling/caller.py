"""Calls an implementation on one case, and translates exceptions into results for the law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from flash_attest.impls.contract.call import Call, Phase
from flash_attest.impls.contract.heads import ordered
from flash_attest.impls.contract.plan import Plan
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import ONE_LAYOUT, Inputs, Outputs, contiguous, from_layout, to_layout
from flash_attest.properties.calling.handed import handed_of, problem_with
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.calling.raised import MESSAGE_WIDTH, device_works, judged
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import keywords_of
from flash_attest.properties.cases.layouts import MARGIN, Placed, lay_out, layout_of, place
from flash_attest.properties.failures import (
    AnotherCase,
    LawBroken,
    OutOfMemory,
    Raises,
    Replaces,
    Undecided,
    is_out_of_memory,
)
from flash_attest.properties.forms import packed
from flash_attest.properties.judging.known import Known
from flash_attest.properties.progress import NOW
from flash_attest.properties.state.patched import words
from flash_attest.properties.state.randomness import Randomness, randomness
from flash_attest.properties.state.thing import Change
from flash_attest.properties.state.watch import Watch
from flash_attest.races.bits import bits
from flash_attest.texts import cut, words_of


def as_they_are(outputs: Outputs) -> Outputs:
    """Return the outputs: the default of `then`."""
    return outputs


NOBODYS = 3.0  # what rows of no sequence hold
MOST_REFUSALS = 20  # errors that a law allows; if all calls so far were errors, no further case is tried


@dataclass
class Caller:
    """Calls one implementation on one case, in this process.

    A law gets it as `trial.caller`. If the implementation runs in a kernel process, the
    caller has another class (runner/untrusted/caller.py).
    """

    impl: Implementation
    case: Case
    device: str
    meter: Meter = field(default_factory=Meter)
    known: Known = field(default_factory=Known)  # has the changes of state that the contract check has reported
    judges_state: bool = True  # whether a change of global state breaks the law; False if other code checks this
    watch: Watch = field(default_factory=Watch)  # records the global state that calls change (properties/state)

    same_process: ClassVar[bool] = True  # whether the implementation runs in the process of the law

    @classmethod
    def sees_memory(cls, device: str) -> bool:
        """Return whether the law itself reads inputs and outputs where a call leaves them."""
        return True

    def laid_out(self, x: Inputs, **changed) -> Inputs:
        """Return the inputs for `call`: in the implementation's form and order of dimensions.

        They are stored in the layout of the case. changed: new values for fields of the case.
        """
        case = self.case.but(**changed)
        handed = self.stored(x, **changed)
        handed = handed.with_(**{name: lay_out(t, layout_of(name, case.layout)) for name, t in handed.items()})
        return self._shared(x, handed)

    def place(
        self, x: Inputs, fill: float, margin: int = MARGIN, away_from: Inputs | None = None
    ) -> tuple[Inputs, dict[str, Placed]]:
        """Return the inputs for `call`, inside buffers filled with `fill`, and the buffers.

        away_from: inputs whose addresses must differ from those of the new ones modulo 128.
        """
        placed, handed = {}, self.stored(x, fill)
        for name, tensor in handed.items():
            other = None if away_from is None else getattr(away_from, name)
            placed[name] = place(tensor, layout_of(name, self.case.layout), fill, margin, other)
        for name in ("k", "v"):
            if (new := getattr(handed, f"{name}_new")) is not None:
                placed[name] = self._with_new_keys(handed.plan, placed[name], from_layout(self.impl, new))
        handed = self._shared(x, handed.with_(**{name: p.tensor for name, p in placed.items()}))
        if self._shares(x):
            placed["v"] = replace(placed["k"], tensor=handed.v)
        return handed, placed

    def _with_new_keys(self, plan: Plan, there: Placed, new: torch.Tensor) -> Placed:
        """Return the buffer with the bits that it has once a call has appended new keys to it."""
        unwritten = there.tensor.clone()
        plan.append(from_layout(self.impl, there.tensor), new)
        after = bits(there.buffer).clone()
        there.tensor.copy_(unwritten)
        return replace(there, after=after)

    def as_stored(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return an input in the implementation's layout. Those of ONE_LAYOUT have no other."""
        return contiguous(tensor) if name in ONE_LAYOUT else to_layout(self.impl, tensor)

    def stored(self, x: Inputs, fill: float = NOBODYS, **changed) -> Inputs:
        """Turn inputs in the public layout into contiguous ones in the implementation's layout.

        They are in its form and order of heads. fill: what rows that belong to no sequence hold.
        """
        buffers = packed(self.impl, self.case.but(**changed), ordered(self.impl, x), fill)
        stored = buffers.with_(**{name: self.as_stored(name, tensor) for name, tensor in buffers.items()})
        return self._shared(x, stored)

    def _shared(self, x: Inputs, handed: Inputs) -> Inputs:
        """Return the inputs for `call` with v as the first columns of k, if the case says so."""
        return handed.with_(v=handed.k[..., : self.case.headdim_v]) if self._shares(x) else handed

    def _shares(self, x: Inputs) -> bool:
        """Return whether v is the first columns of k in memory. A law may have set it alone."""
        first = x.k[..., : self.case.headdim_v]
        return self.case.shared_kv and first.shape == x.v.shape and bool((bits(first) == bits(x.v)).all())

    def call(
        self,
        handed: Inputs,
        *,
        backward: bool = False,
        wrt: tuple[str, ...] | None = None,
        then: Callable[[Outputs], Outputs] = as_they_are,
        between: Callable[[], object] = lambda: None,
        twice: bool = False,
        as_returned: bool = False,
        **changed,
    ) -> Outputs:
        """Call the implementation on inputs that are already in its layout.

        then: called with the outputs before the GPU has finished. between: called between forward
        and backward, to make another call there. twice: with backward="autograd", run backward
        twice on one graph and return the outputs of the second run. as_returned: outputs are the
        returned tensors themselves, for `public_outputs`.

        Raises Undecided if memory runs out, or if a kernel uses a feature that the emulator lacks.
        """
        before = handed_of(handed)
        new_call = Call(self.impl, handed, backward, wrt, **keywords_of(self.case.but(**changed)))
        new_call.enters, new_call.around = self._enters, self.watch
        # An error of the call in `between` has its own message, so it is raised instead of this
        # call's.
        of_another: list[Exception] = []

        def aside() -> None:
            try:
                between()
            except (LawBroken, Undecided) as error:
                of_another.append(error)
                raise

        new_call.between, new_call.twice, new_call.as_returned = aside, twice, as_returned
        try:
            with self._judged(lambda: new_call.phase):
                got = then(new_call.run())
                if self.device == "cuda":
                    torch.cuda.synchronize()
        except (LawBroken, Undecided) as error:
            if of_another:
                raise of_another[0] from None
            if isinstance(error, Raises) and (names := self.watch.replaced + self.known.replaced()):
                error.observed.insert(0, words("before that, it", names))
            raise
        # The call succeeded: check that it left its inputs and global state unchanged.
        if problem := problem_with(handed, before):
            raise LawBroken(f"{new_call.phase.value} {problem}: inputs should come back as they were")
        if self.judges_state and (new := self.known.unnamed(self.impl.name, self.watch.changes)):
            drawn = [change for change in new if change.draws]
            problems = [change.text for change in new if change not in drawn]
            if drawn and then is as_they_are:  # otherwise the law looks at each call
                problems += self.randomness(handed, got, backward=backward, wrt=wrt, **changed).problems
            if problems:
                raise (Replaces if self.watch.replaced else LawBroken)(*problems)
            self.known.name(self.impl.name, drawn)
        return got

    def randomness(
        self, handed: Inputs, got: Outputs, *, backward: bool, wrt: tuple[str, ...] | None = None, **changed
    ) -> Randomness:
        """Return what the call that returned `got` did with random numbers.

        This makes two more calls.
        """

        def again() -> tuple[Outputs, list[Change]]:
            new_call = Call(self.impl, handed, backward, wrt, **keywords_of(self.case.but(**changed)))
            new_call.enters, new_call.around, seen = self._enters, self.watch, len(self.watch.changes)
            with self._judged(lambda: new_call.phase):
                outputs = new_call.run()
            return self.copied(outputs), self.watch.changes[seen:]

        drawn = [change for change in self.watch.changes if change.draws]
        return randomness(drawn, self.copied(got), again, [n for n, _ in got.items() if n in self.impl.repeatable])

    @contextmanager
    def may_begin_again(self) -> Iterator[None]:
        """Restart the case if memory runs out in this block, unless global state has changed.

        A call that has changed global state is not repeated: the state has been restored, the next
        call might not change it again, and the change would be hidden.
        """
        try:
            yield
        except OutOfMemory as error:
            if self.known.unnamed(self.impl.name, self.watch.changes):
                raise Undecided(str(error), error.why) from None
            raise

    def copied(self, outputs: Outputs) -> Outputs:
        """Return copies of what a call returned. Memory that cannot be read breaks the law."""
        return Outputs(**{name: self._copied(name, tensor) for name, tensor in outputs.items()})

    def _copied(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        try:
            return tensor.clone()
        except RuntimeError as error:
            if is_out_of_memory(error) or not device_works(self.device):
                raise
            raise LawBroken(f"{name} cannot be read: {next(iter(words_of(error).splitlines()), '')}") from error

    def launch(self, handed: Inputs, *, backward: bool = False) -> Outputs:
        """Make one of many repeated calls, without waiting for a GPU or watching state."""
        new_call = Call(self.impl, handed, backward, None, **keywords_of(self.case))
        new_call.enters = self._enters
        with self._judged(lambda: new_call.phase):
            return new_call.run()

    @contextmanager
    def waited_for(self, backward: bool = False) -> Iterator[None]:
        """Mark a block of `launch` calls, whose errors the GPU may report only later."""
        phase = Phase.BACKWARD if backward else Phase.FORWARD
        try:
            yield
        except RuntimeError:
            if self.device == "cuda":  # the error may be one of the launches, as reading results waits for them
                with self._judged(lambda: phase):
                    torch.cuda.synchronize()
            raise
        if self.device == "cuda":
            with self._judged(lambda: phase):
                torch.cuda.synchronize()

    def _enters(self, phase: str) -> None:
        NOW.enters(phase)
        self.known.calls(self.case, phase)

    def _judged(self, phase: Callable[[], Phase]) -> AbstractContextManager[None]:
        """Mark a block in which the implementation runs. `phase` returns its phase at that time."""
        return judged(phase, self.case, self.device, self.meter.clock)

    @contextmanager
    def looking_again(self) -> Iterator[Callable[[], None]]:
        """Yield a function that updates the outputs returned in this block.

        They then show everything written to them since. In this class the outputs are already the
        implementation's own memory, so the function does nothing.
        """
        yield lambda: None

    def answer(self, handed: Inputs, *, backward: bool = False, twice: bool = False) -> Outputs | None:
        """Make a `call`, or return None if it raises or runs out of memory.

        These errors are counted in the note of the verdict. If the device no longer works after an
        error, the error is raised.
        """
        try:
            return self.call(handed, backward=backward, twice=twice)
        except (Raises, Undecided) as error:
            if not self.device_works():
                raise
            self.meter.refusals += 1
            self.meter.note = (
                f"errors that this law allows: {self.meter.refusals}, such as: {cut(str(error), MESSAGE_WIDTH)}"
            )
            return None

    def needs_answers(self) -> None:
        """Refuse to draw further cases if `answer` has given only errors."""
        if self.meter.cases == 0 and self.meter.refusals >= MOST_REFUSALS:
            raise AnotherCase

    def device_works(self) -> bool:
        """Return False after an illegal access on a GPU: this process cannot launch more."""
        return device_works(self.device)
