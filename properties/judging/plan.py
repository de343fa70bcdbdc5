"""The plan of a run, made once and passed to everything that launches a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.calling.caller import Caller
from flash_attest.properties.calling.meter import Meter
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.feature import Feature
from flash_attest.properties.judging.explained import Explained
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.origin import OURS, Origin
from flash_attest.properties.trial import Trial

REPEATS = 3  # repeats of a failing case, to see whether it fails each time
CALLED_WITH = ", called with "  # in the record of a case, precedes the fields that the call in progress changes
CONTRACT_CHAPTER = "properties/test_contract.py::"
CONTRACT_CHECK = "test_contract_is_kept"  # no law, but known_failures may list it


def contract_test(impl: str) -> str:
    """Return the test id of an implementation's contract check, as Law.test_id does for a law."""
    return f"{CONTRACT_CHAPTER}{CONTRACT_CHECK}[{impl}]"


@dataclass(frozen=True)
class Lost:
    """A case whose call did not return, so that it is not launched again.

    breaks: whether this breaks the contract.
    """

    words: str
    breaks: bool


@dataclass
class Plan:
    """The plan of a run: the device, the number of cases, the seed, or one given case."""

    device: str = "cpu"
    examples: int = 30
    seed: int = 0
    repeats: int = 100
    perturbations: str = ""  # perturbations of repeated calls, by name, as in --perturb
    case: Case | None = None
    only_case: bool = False  # nothing else is judged, so the contract is tried with what the case has
    case_timeout: float = 0.0  # seconds that a call may take, in a process of its own; 0: no limit
    small: bool = False  # drawn cases are small on a CPU
    write_down: Callable[[str], None] = field(default=lambda text: None)  # called before each launch
    try_contract: bool = True  # try the contract before the law; False if it is known to be kept
    goes_on: bool = True  # after a failure, trace it and judge without its clues; False if only the failure counts
    traces: bool = True  # False if a plug-in's kernels would run on the GPU, as they take no CPU tensors then
    # When a law has to be decided, by time.monotonic, and whose limit that is, in words.
    until: tuple[float, str] | None = None
    lost: Mapping[str, Lost] = field(default_factory=dict)  # by the text of the case (runner/isolation)
    # Failures of the implementation that other laws have explained, as far as known (repeats.py)
    explained: Sequence[Explained] = ()
    alone: Callable[..., list[str]] | None = None  # see Trial
    known: Known = field(default_factory=Known)  # the results that the judging process keeps
    caller_of: Callable[[Implementation], type[Caller]] = lambda impl: Caller  # the class that calls an implementation
    origin: Origin = OURS  # how the implementation was found

    def trial(self, impl: Implementation, case: Case, meter: Meter | None = None) -> Trial:
        """Return the Trial that a law gets. Its calls are counted in `meter`, if one is given."""
        return Trial(
            impl,
            case,
            self.device,
            Meter() if meter is None else meter,
            repeats=self.repeats_for(impl),
            perturbations=self.perturbations,
            origin=self.origin,
            alone=self.alone,
            given=self.case is not None,
            calls=self.caller_of(impl),
            known=self.known,
        )

    def contract_key(self, impl: Implementation, device: str) -> str:
        """Return the key of `Known.contract` for what this plan wants to know on a device: a part
        of the contract, unless all of it was tried.
        """
        in_part = self.only_case and self.known.contract(impl, device) is None
        return f"{device}, the case" if in_part else device

    def tries(self, feature: Feature, value: Any, plain: Case) -> bool:
        """Return whether this plan tries the contract with a value of a feature, in a plain case.

        If it has one case, only a problem of that case's own value matters, or of the values that
        stand for it if it is none of those that are tried.
        """
        if not self.only_case or self.case is None:
            return True
        own = feature.value(self.case)
        return own != feature.value(plain) and (own == value or own not in feature.tried)

    def cases_for(self, impl: Implementation, share: float) -> int:
        """Return how many cases a law with this share draws for an implementation."""
        return max(2, round(self.examples * share * impl.share_on(self.device)))

    def repeats_for(self, impl: Implementation) -> int:
        """Return how often a call is repeated to see whether its results agree."""
        return max(2, round(self.repeats * impl.share_on(self.device)))
