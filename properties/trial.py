"""One implementation on one case: builds the inputs, runs it, asks the oracle, and measures time and error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property

import torch

from flash_attest import oracle
from flash_attest.impls import Implementation
from flash_attest.impls.contract import call
from flash_attest.impls.contract.arguments import rounded_up
from flash_attest.impls.contract.call import Call, Inputs, Outputs, Phase
from flash_attest.properties.calling import MESSAGE_WIDTH, device_works, judged, places
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import keywords_of, mask_of, variant_of
from flash_attest.properties.cases.fitting import MULTIPLES
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.layouts import MARGIN, Placed, lay_out, layout_of, place
from flash_attest.properties.cases.random_tensors import RandomTensors
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import AnotherCase, LawBroken, OutOfMemory, Raises, Undecided
from flash_attest.properties.machine.clock import Clock, Work
from flash_attest.properties.machine.nearby import Nearby
from flash_attest.properties.progress import NOW
from flash_attest.properties.state.watch import Watch, unnamed
from flash_attest.runner.untrusted.remote import remote_of

MOST_REFUSALS = 20  # errors that a law allows; if no case came without one by then, no further one is tried
MOST_LOOKS = 5  # cases of which a law can say nothing, after which no further one is looked at


@dataclass
class Meter:
    """What one law on one implementation cost, and how close it came to the limits."""

    cases: int = 0
    clock: Clock = field(default_factory=Clock)
    worst_z: dict[str, float] = field(default_factory=dict)
    repeats: int = 0
    launches: int = 0  # traced ones, or those whose equal heads were compared
    under: set[str] = field(default_factory=set)  # the perturbations that were active in some repeat
    p: float = 0.0  # the bound of the case with the fewest tries, none of which showed anything
    kernels: set[str] = field(default_factory=set)  # those that a sanitizer watched
    clean: dict[Case, list[str]] = field(default_factory=dict)  # cases watched together with others: their kernels
    looks: int = 0  # cases of which the law can say nothing, though their calls were made (MOST_LOOKS)
    refusals: int = 0  # calls that raised, in a law that allows it
    note: str = ""  # what the law says beside its verdict: "none in 300 repeats, p < 1 %"

    def counted(self) -> dict[str, object]:
        """What is counted so far, without the time."""
        return {name: copy(value) for name, value in vars(self).items() if name != "clock"}

    def forget_since(self, counted: dict[str, object]) -> None:
        """Count only what was counted then: the case since then is begun anew, or undecided."""
        vars(self).update(counted)

    def saw(self, name: str, z: float) -> None:
        """Remember the worst z of a tensor."""
        self.worst_z[name] = max(z, self.worst_z.get(name, 0.0))


@dataclass
class Trial:
    """What a law gets. `x` are the case's inputs; `run` calls the implementation; `want` and `budget` ask the oracle."""

    impl: Implementation
    case: Case
    device: str
    meter: Meter = field(default_factory=Meter)
    repeats: int = 100
    perturbations: str = ""  # of repeated calls, as --perturb names them (races/perturb)
    origin: str = ""  # how the implementation was found, as a command line has it: "--impl-from=my_file.py"
    write_down: Callable[[str], None] = lambda what: None  # keeps what is about to be called, should the process die
    watch: Watch = field(default_factory=Watch)  # has what calls leave otherwise than it was (properties/state)
    judges_state: bool = True  # whether that breaks a law; False: the caller looks at it

    @cached_property
    def x(self) -> Inputs:
        """The inputs of the case, in the public layout, contiguous."""
        with self.meter.clock.counts(Work.INPUTS):
            return build(self.case, self.device)

    @cached_property
    def nearby(self) -> Nearby:
        """Where the oracle computes."""
        return Nearby(self.device)

    @property
    def backward(self) -> bool:
        """Whether there is a backward to judge."""
        return self.impl.backward is not None

    @property
    def form(self) -> str:
        """Whether roundings count as independent in this regime, or add up at their worst (oracle/budget.py)."""
        return oracle.form_of(self.case.regime, self.case.dtype, self.impl.precision)

    def zeroed(self, *names: str) -> Inputs:
        """The inputs of the case with some of them 0."""
        return self.x.with_(**{name: torch.zeros_like(getattr(self.x, name)) for name in names})

    def random(self, word: str) -> RandomTensors:
        """Random numbers of this case, for what a law draws by itself; `word` keeps two such draws apart."""
        return RandomTensors(self.case, self.device, word)

    def needs(self, holds: bool) -> None:
        """Draw another case unless this holds: the law says nothing about this one."""
        if not holds:
            raise AnotherCase

    def needs_supported(self, case: Case) -> None:
        """Draw another case if the implementation does not support a second one that the law would run."""
        if unsupported(self.impl, case) is not None:
            raise AnotherCase

    def cut(self, word: str, length: int, parts: Callable[[int], Iterable[Case]]) -> int:
        """Where to cut this many rows or keys in two, at random, so that the implementation supports the cases parts(n).

        That is a multiple of 8, 16, ..., 128 where it takes no other length. Draw another case if there is none.
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

        `changed` names fields of the case that this call has otherwise (softmax_scale, layout, ...). An exception of the
        implementation breaks the law. The outputs are copies: where the next call writes to them (a defect that
        test_memory names), a law that compares two calls would compare the second one with itself.
        """
        handed = self.laid_out(x, changed.pop("layout", self.case.layout))
        return self.call(handed, backward=backward, wrt=wrt, **changed).copy()

    def laid_out(self, x: Inputs | None = None, layout: str | None = None) -> Inputs:
        """The inputs as `call` takes them: in the implementation's layout, stored in the case's."""
        stored, layout = self.stored(self.x if x is None else x), layout or self.case.layout
        return Inputs(**{name: lay_out(t, layout_of(name, layout)) for name, t in stored.items()})

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
        return tensor if name == "bias" else call.to_layout(self.impl, tensor)

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
            with self._judged(made):
                got = then(made.run())
                if self.device == "cuda":
                    torch.cuda.synchronize()
        except (LawBroken, Undecided):
            if of_another:
                raise of_another[0] from None
            raise
        if resized := [name for name, place in places(handed).items() if place != before[name]]:
            raise LawBroken(f"{made.phase.value} resizes {', '.join(resized)}: inputs should come back as they were")
        if self.judges_state and (changed := unnamed(self.impl.name, self.watch.changes)):
            raise LawBroken(*changed)
        return got

    @contextmanager
    def may_begin_again(self) -> Iterator[None]:
        """A block whose OutOfMemory has the case begun again, but not if a call has left something otherwise than it was.

        That has been put back, and the next call may not do it again: begun again, the case would hide it.
        """
        try:
            yield
        except OutOfMemory as error:
            if unnamed(self.impl.name, self.watch.changes):
                raise Undecided(str(error), error.why) from None
            raise

    def launch(self, handed: Inputs, *, backward: bool = False) -> Outputs:
        """`call` for repeats of one call: does not wait for a GPU, nor looks at what else the call changes."""
        made = Call(self.impl, handed, backward, None, **keywords_of(self.case))
        made.enters = NOW.enters
        with self._judged(made):
            return made.run()

    @contextmanager
    def waited_for(self, backward: bool = False) -> Iterator[None]:
        """Around calls of `launch`: an error that a GPU finds after one has returned is the implementation's, too."""
        made = Call(self.impl, self.x, backward)
        made.phase = Phase.BACKWARD if backward else Phase.FORWARD
        try:
            yield
        except RuntimeError:
            if self.device == "cuda":  # what reads results waits for them: is it an error of the launches?
                with self._judged(made):
                    torch.cuda.synchronize()
            raise
        if self.device == "cuda":
            with self._judged(made):
                torch.cuda.synchronize()

    def _judged(self, made: Call) -> AbstractContextManager[None]:
        """A block that has the implementation work."""
        return judged(made, self.case, self.device, self.meter.clock)

    @contextmanager
    def looking_again(self) -> Iterator[Callable[[], None]]:
        """In this block, look_again() has outputs that were returned in it show what has been written to them since.

        Those of a kernel process (runner/untrusted) are copies, which it brings up to date; others need nothing.
        """
        remote = remote_of(self.impl)
        with remote.watched() if remote else nullcontext():
            yield remote.look_again if remote else lambda: None

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
        self.needs(self.meter.cases > 0 or self.meter.refusals < MOST_REFUSALS)

    def device_works(self) -> bool:
        """False after an illegal access on a GPU: this process can launch nothing more."""
        return device_works(self.device)

    def want(self, x: Inputs | None = None, *, backward: bool = False, **changed) -> oracle.Attention:
        """The oracle's answer in float64."""
        x = self.x if x is None else x
        with self.meter.clock.counts(Work.ORACLE):
            (x,) = self.nearby.bring(x)
            return self.nearby.send(
                oracle.attention(x.q, x.k, x.v, self.variant(x, **changed), dout=x.dout if backward else None)
            )

    def budget(self, want: oracle.Attention, x: Inputs | None = None, *, backward: bool = False, **changed):
        """How wrong each output may be: sigma per element (oracle/budget.py)."""
        x = self.x if x is None else x
        with self.meter.clock.counts(Work.BUDGET):
            x, want = self.nearby.bring(x, want)
            found = oracle.budget(
                x.q,
                x.k,
                x.v,
                self.variant(x, **changed),
                want,
                dout=x.dout if backward else None,
                precision=self.impl.precision,
                form=self.form,
            )
            return self.nearby.send(found)

    def variant(self, x: Inputs | None = None, **changed) -> oracle.Variant:
        """What the oracle has to know beside q, k and v; `changed` names fields of the case that differ."""
        x = self.x if x is None else x
        return variant_of(self.case.but(**changed), self.impl.causal_alignment, x.bias)

    def visible(self) -> torch.Tensor:
        """bool (sq, sk): which keys each query sees by position (a bias may hide more)."""
        case = self.case
        return mask_of(case, self.impl.causal_alignment).visible(case.seqlen_q, case.seqlen_k, device=self.device)
