"""How a run judges: decided once, and passed to everything that launches a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.calling.caller import Caller
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.origin import OURS, Origin
from flash_attest.properties.trial import Trial

REPEATS = 3  # of a failing case, to see whether it comes and goes
CALLED_WITH = ", called with "  # between a case and what the call in progress has otherwise, where it is written down
CONTRACT_CHAPTER = "properties/test_contract.py::"


def contract_test(impl: str) -> str:
    """The test id of the contract check of an implementation, as Law.test_id gives that of a law."""
    return f"{CONTRACT_CHAPTER}test_contract_is_kept[{impl}]"


@dataclass(frozen=True)
class Lost:
    """A case whose call did not come back, so that it is not launched again. breaks: whether that breaks the promise."""

    words: str
    breaks: bool


@dataclass
class Plan:
    """How to judge: on which device, with how many cases, from which seed; one given case instead of drawn ones."""

    device: str = "cpu"
    examples: int = 30
    seed: int = 0
    repeats: int = 100
    perturbations: str = ""  # of repeated calls, as --perturb names them
    case: Case | None = None
    small: bool = False  # drawn cases are small on a CPU
    write_down: Callable[[str], None] = field(default=lambda text: None)  # called before each launch
    try_contract: bool = True  # before the law; False where it is known to be kept
    goes_on: bool = True  # after a failure: without what is special about its case, and traced; False if only it counts
    traces: bool = True  # False where a plug-in's kernels would run on the GPU, which takes no CPU tensors
    lost: Mapping[str, Lost] = field(default_factory=dict)  # by case, as text (runner/isolation)
    alone: Callable[[str, str, list[str], list[str]], list[str]] | None = None  # as Trial has it
    known: Known = field(default_factory=Known)  # what the process that judges has found out
    caller_of: Callable[[Implementation], type[Caller]] = lambda impl: Caller  # who calls an implementation
    origin: Origin = OURS  # how the implementation was found

    def trial(self, impl: Implementation, case: Case, meter: Meter | None = None) -> Trial:
        """What a law gets. meter: what counts its calls; without it they do not count."""
        return Trial(
            impl,
            case,
            self.device,
            Meter() if meter is None else meter,
            repeats=self.repeats_for(impl),
            perturbations=self.perturbations,
            origin=self.origin,
            alone=self.alone,
            calls=self.caller_of(impl),
            known=self.known,
        )

    def cases_for(self, impl: Implementation, share: float) -> int:
        """How many cases a law with this share draws for an implementation."""
        return max(2, round(self.examples * share * impl.share_on(self.device)))

    def repeats_for(self, impl: Implementation) -> int:
        """How often a call is repeated to see whether it agrees with itself."""
        return max(2, round(self.repeats * impl.share_on(self.device)))
