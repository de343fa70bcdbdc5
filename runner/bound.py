"""A law bound to an implementation: what a test under @attention_laws gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flash_attest.did_you_mean import did_you_mean
from flash_attest.impls.contract.record import DEVICES, ContractError, Implementation
from flash_attest.properties.cases.support import missing
from flash_attest.properties.law import Law, laws

CONTRACT = "contract_is_kept"  # the id of the first test: whether the declaration is true of a few cases


class BoundLaw:
    """A law and the implementation that it is to be judged on; law() judges.

    A pass returns; a failure raises, with the message of the suite; what does not apply, or cannot be decided, skips the test
    with the reason. law.__name__ is its name, law.rule why it holds.
    """

    def __init__(self, law: Law | None, impl: Implementation):
        self.law, self.impl = law, impl
        self.judged: Callable[[BoundLaw], None] | None = None  # set by the pytest plug-in
        self.__name__ = law.name.removeprefix("test_") if law else CONTRACT

    @property
    def test_name(self) -> str:
        """The name of its test in our own run."""
        return self.law.name if self.law else f"test_{CONTRACT}"

    @property
    def rule(self) -> str:
        """Why the law holds."""
        return self.law.rule if self.law else "The implementation keeps what it declares."

    def __call__(self) -> None:
        """Judge. Raises what pytest reports; RuntimeError where the pytest plug-in is not there."""
        if self.judged is None:
            raise RuntimeError(
                f"{self.__name__} has no run that judges it: run it with pytest and the plug-in flash-attest (it is switched "
                "off by -p no:flash-attest), or call flash_attest.check(implementation) in a script"
            )
        self.judged(self)

    def __repr__(self) -> str:
        return f"<law {self.__name__} on {self.impl.name}>"


def laws_of(impl: Implementation) -> Sequence[BoundLaw]:
    """The contract and the laws that apply to what an implementation declares; those that may end a process come last."""
    promised = [impl.on(device) for device in DEVICES]  # on which of them is known when the run begins
    applying = [law for law in laws().values() if not all(missing(each, law.needs) for each in promised)]
    known = {law.name for law in laws().values()}
    if unknown := sorted(set(impl.known_failures) - known):
        names, similar = ", ".join(unknown), did_you_mean((f"test_{name}" for name in unknown), known)
        raise ContractError(
            f"known_failures names {names}: there is no such law{similar}; `flash-attest laws` lists them"
        )
    return [BoundLaw(law, impl) for law in (None, *sorted(applying, key=lambda law: law.last))]
