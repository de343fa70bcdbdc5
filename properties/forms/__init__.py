"""Forms of a call: each module makes the plan of one form from an implementation and a case.

A form changes the call, not the problem. The dense case stays the problem, so every law runs
through every form. Around its sequences stand neighbours, which are not judged.
"""

from __future__ import annotations

from collections.abc import Callable

from flash_attest.impls.contract.plan import Plan
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.forms.cache import cache
from flash_attest.properties.forms.padded import padded
from flash_attest.properties.forms.paged import paged
from flash_attest.properties.forms.parts import parts
from flash_attest.properties.forms.varlen import varlen

PLANS: dict[str, Callable[[Implementation, Case], Plan]] = {
    "varlen": varlen,
    "padded": padded,
    "cache": cache,
    "paged": paged,
    "parts": parts,
}


def plan_of(impl: Implementation, case: Case, x: Inputs) -> Plan | None:
    """Return the plan of a call on the inputs x (public layout); None in the dense form.

    A law may pass inputs of other sizes than the case has, such as a part of the keys.
    """
    make = PLANS.get(impl.supports.form)
    if make is None:
        return None
    (batch, seqlen_q), seqlen_k = x.q.shape[:2], x.k.shape[1]
    if (batch, seqlen_q, seqlen_k) != (case.batch, case.seqlen_q, case.seqlen_k):
        case = case.but(batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
    return make(impl, case)


def packed(impl: Implementation, case: Case, x: Inputs, fill: float) -> Inputs:
    """Return the inputs of a call in the implementation's form; x itself in the dense form.

    fill: what rows of nobody hold. NaN becomes a large number where they must be finite.
    """
    plan = plan_of(impl, case, x)
    if plan is None:
        return x
    return plan.pack(x, LARGE if fill != fill and impl.slack == "finite" else fill)


LARGE = 2.0**15  # finite in float16, and far from every value of a case
