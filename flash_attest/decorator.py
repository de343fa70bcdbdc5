"""Makes the laws of attention tests in any repository: @attention_laws."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from flash_attest.did_you_mean import did_you_mean
from flash_attest.impls.contract.record import Absent, Implementation
from flash_attest.impls.contract.supports import Supports
from flash_attest.runner.bound import laws_of

OF_SUPPORTS = {f.name for f in fields(Supports)}
OF_IMPLEMENTATION = {f.name for f in fields(Implementation) if f.init} - {"supports"}


def attention_laws(*implementations: Implementation, **declared: Any) -> pytest.MarkDecorator:
    """Turn a test that takes `law` into one test for each law of attention that applies.

        @attention_laws(forward=my_attention, layout="bhsd", causal="optional",
                        headdims={16, 32, 64}, dtypes={torch.float16},
                        known_failures={"test_offsets_need_64_bits": "overflows, #12"})
        def test_attention(law):
            law()

    implementations: records of `flash_attest.Implementation`. For a single one, its fields and
        those of `Supports` may be given by name instead, as above. forward(q, k, v, ...) takes
        (batch, seqlen, nheads, headdim), or (batch, nheads, seqlen, headdim) with layout="bhsd".
        name defaults to the function's name.

    Each test is named by its law, as in test_attention[query_sees_exactly_its_prefix]. The test
    contract_is_kept comes first. Kernels are called in a separate process, so a crash is a failure
    with its smallest case. --attest-profile, or attest_profile in pytest's settings, says how many
    cases each law gets; `pytest --help` lists the other options. A function or a method of a test
    class may be decorated, other marks may be added, and the test may do more than call law().

    Raises ContractError, which names each wrong field, or TypeError for an unknown field.
    """
    impls = list(implementations)
    for impl in impls:
        if not isinstance(impl, Implementation):
            hint = ": pass forward=that function, as in @attention_laws(forward=...)" if callable(impl) else ""
            if isinstance(impl, Absent):
                hint = f"; it cannot be loaded on this machine: {impl.reason}"
            raise TypeError(f"attention_laws: {impl!r} should be a flash_attest.Implementation{hint}")
    if declared and impls and "forward" not in declared:
        raise TypeError(f"attention_laws: {', '.join(declared)} beside an Implementation: put it into its declaration")
    if declared or not impls:
        impls.append(_declared(declared))
    bound = [each for impl in impls for each in laws_of(impl)]
    several = len(impls) > 1
    ids = [f"{each.impl.name}-{each.__name__}" if several else each.__name__ for each in bound]
    return pytest.mark.parametrize("law", bound, ids=ids)


def _declared(given: dict[str, Any]) -> Implementation:
    if unknown := sorted(set(given) - OF_SUPPORTS - OF_IMPLEMENTATION - {"supports"}):
        known = sorted(OF_IMPLEMENTATION | OF_SUPPORTS)
        similar = did_you_mean(unknown, known) or f"; the fields are {', '.join(known)}"
        raise TypeError(f"attention_laws: there is no field {', '.join(unknown)}{similar}")
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
    """Return a name for messages, made from the function's name."""
    name = getattr(function, "__name__", type(function).__name__).lower()
    return re.sub(r"[^a-z0-9_]+", "_", name).strip("_") or "attention"
