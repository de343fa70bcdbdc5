"""A law bound to an implementation: what a test under @attention_laws receives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flash_attest.did_you_mean import did_you_mean
from flash_attest.impls.contract.record import DEVICES, ContractError, Implementation
from flash_attest.properties.cases.support import missing
from flash_attest.properties.judging.verdict import law_name
from flash_attest.properties.law import Law, laws

CONTRACT = "contract_is_kept"  # id of the first test, which tries the declaration on a few cases


class BoundLaw:
    """A law and the implementation to judge it on. Call the object to judge.

    The call returns if the law holds, and raises with the suite's message if it fails. If the law
    does not apply or cannot be decided, the test is skipped with the reason. `law.__name__` is the
    law's name, `law.rule` says why it holds.
    """

    def __init__(self, law: Law | None, impl: Implementation):
        self.law, self.impl = law, impl
        self.judged: Callable[[BoundLaw], None] | None = None  # set by the pytest plug-in
        self.__name__ = law.name.removeprefix("test_") if law else CONTRACT

    @property
    def test_name(self) -> str:
        """Return the name of this law's test in the suite's own run."""
        return self.law.name if self.law else f"test_{CONTRACT}"

    @property
    def rule(self) -> str:
        """Return why the law holds."""
        return self.law.rule if self.law else "The implementation keeps what it declares."

    def __call__(self) -> None:
        """Judge the law. Raises the exception that pytest reports, or RuntimeError without the
        pytest plug-in.
        """
        if self.judged is None:
            raise RuntimeError(
                f"{self.__name__} has no run that judges it: run it with pytest and the plug-in flash-attest (it is switched "
                "off by -p no:flash-attest), or call flash_attest.check(implementation) in a script"
            )
        self.judged(self)

    def __repr__(self) -> str:
        return f"<law {self.__name__} on {self.impl.name}>"


def laws_of(impl: Implementation) -> Sequence[BoundLaw]:
    """Return the contract check and the laws that apply to an implementation.

    Laws that may end the process come last. Raises ContractError if known_failures names an unknown
    law.
    """
    variants = [impl.on(device) for device in DEVICES]  # the run's device is not known yet
    applying = [law for law in laws().values() if not all(missing(each, law.needs) for each in variants)]
    known = {f"test_{CONTRACT}", *(law.name for law in laws().values())}
    if unknown := sorted(set(impl.known_failures) - known):
        names = [law_name(name) for name in unknown]
        similar = did_you_mean(names, map(law_name, known))
        raise ContractError(
            f"known_failures names {', '.join(names)}: there is no such law{similar}; `flash-attest laws` lists them"
        )
    return [BoundLaw(law, impl) for law in (None, *sorted(applying, key=lambda law: law.last))]
