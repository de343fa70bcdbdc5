"""@attention_laws: the laws of attention as tests in anybody's repository."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import pytest

from flash_attest.impls.contract.record import DEVICES, ContractError, Implementation, Supports
from flash_attest.properties.cases.support import missing
from flash_attest.properties.law import Law, laws

CONTRACT = "contract_is_kept"  # the id of the first test: whether the declaration is true of a few cases
OF_SUPPORTS = {f.name for f in fields(Supports)}
OF_IMPLEMENTATION = {f.name for f in fields(Implementation) if f.init} - {"supports"}


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


def attention_laws(*implementations: Implementation, **declared: Any) -> pytest.MarkDecorator:
    """Turn a test that takes `law` into one test for each law of attention that applies.

        @attention_laws(forward=my_attention, layout="bhsd", causal="optional", headdims={16, 32, 64}, dtypes={torch.float16},
                        known_failures={"test_offsets_need_64_bits": "overflows, #12"})
        def test_attention(law):
            law()

    implementations: records of `flash_attest.Implementation`. Instead of one, its fields and those of `Supports` may be given
        by name, as above: forward(q, k, v, ...) takes (batch, seqlen, nheads, headdim), or (batch, nheads, seqlen, headdim)
        with layout="bhsd". name is the function's name if it is not given.

    Each test is named by its law, as in test_attention[query_sees_exactly_its_prefix]; contract_is_kept comes first. Kernels
    are called in a process of their own, so that a crash is a failure with its smallest case. --attest-profile, or
    attest_profile in pytest's settings, says how many cases each law gets; `pytest --help` lists the other options. The mark
    may stand on a function or on a method of a test class, beside other marks, and the test may do more than call law().

    Raises ContractError, naming each field that is wrong, and TypeError for a field that there is not.
    """
    impls = list(implementations)
    if declared or not impls:
        impls.append(_declared(declared))
    for impl in impls:
        if not isinstance(impl, Implementation):
            raise TypeError(f"attention_laws: {impl!r} should be a flash_attest.Implementation")
    bound = [each for impl in impls for each in laws_of(impl)]
    several = len(impls) > 1
    ids = [f"{each.impl.name}-{each.__name__}" if several else each.__name__ for each in bound]
    return pytest.mark.parametrize("law", bound, ids=ids)


def laws_of(impl: Implementation) -> Sequence[BoundLaw]:
    """The contract and the laws that apply to what an implementation declares; those that may end a process come last."""
    promised = [impl.on(device) for device in DEVICES]  # on which of them is known when the run begins
    applying = [law for law in laws().values() if not all(missing(each, law.needs) for each in promised)]
    known = {law.name for law in laws().values()}
    if unknown := sorted(set(impl.known_failures) - known):
        raise ContractError(
            f"known_failures names {', '.join(unknown)}: there is no such law; `flash-attest laws` lists them"
        )
    return [BoundLaw(law, impl) for law in (None, *sorted(applying, key=lambda law: law.last))]


def _declared(given: dict[str, Any]) -> Implementation:
    if unknown := sorted(set(given) - OF_SUPPORTS - OF_IMPLEMENTATION - {"supports"}):
        known = ", ".join(sorted(OF_IMPLEMENTATION | OF_SUPPORTS))
        raise TypeError(f"attention_laws: there is no field {', '.join(unknown)}; the fields are {known}")
    supports = {name: value for name, value in given.items() if name in OF_SUPPORTS}
    record = {name: value for name, value in given.items() if name not in OF_SUPPORTS}
    if supports and "supports" in record:
        raise TypeError(
            f"attention_laws: {', '.join(supports)} and supports=... are both given: put them into supports"
        )
    if "forward" not in record:
        raise TypeError("attention_laws: forward is missing: the function of (q, k, v, ...) to judge")
    if supports:
        record["supports"] = Supports(**supports)
    record.setdefault("name", _name_of(record["forward"]))
    return Implementation(**record)


def _name_of(function: object) -> str:
    """A name for messages: that of the function."""
    name = getattr(function, "__name__", type(function).__name__).lower()
    return re.sub(r"[^a-z0-9_]+", "_", name).strip("_") or "attention"
