"""Finds what a kernel computed instead, by plain calls of the failing case and of larger ones."""

from __future__ import annotations

import time
from collections.abc import Iterable

from flash_attest import oracle
from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import ContractError
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.form_features import OF_FORM
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import LawBroken, Undecided
from flash_attest.properties.instead.answer import Answer, answer_of
from flash_attest.properties.instead.cases import grown
from flash_attest.properties.instead.matches import statements
from flash_attest.properties.instead.mistake import Mistake
from flash_attest.properties.instead.roundings import rounding_of
from flash_attest.properties.instead.table import OF_FORMS, table_of
from flash_attest.properties.judging.context import blaming_calls
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.races import tracing

MOST_GROWN = 2  # larger cases that fail, too
MOST_CASES = 4  # of those at hand
MOST_PRODUCTS = 2**24  # of a case: its scores, times headdim
MOST_SECONDS = 3.0  # for the calls of one failure; a slow kernel is compared at its smallest case alone


def computed_instead(judgement: Judgement, failing: Iterable[Case]) -> list[str]:
    """Return what the kernel computed instead in all failing cases, one statement a line; [] if
    nothing fits.

    Each failing case, and a larger one, is called once, with its own inputs, whatever inputs the
    law uses. The statements for the same cases are kept, as several laws fail at the same ones.
    Raises ContextLost.
    """
    slow = judgement.impl.share_on(judgement.device) < 1
    most = min(MOST_PRODUCTS, tracing.MOST_PRODUCTS) if slow else MOST_PRODUCTS
    cases = [case for case in dict.fromkeys(failing) if case.products <= most][:MOST_CASES]
    key = "; ".join(map(str, cases))
    return judgement.plan.known.computed(judgement.impl, key, lambda: _found(judgement, cases))


def _found(judgement: Judgement, cases: list[Case]) -> list[str]:
    stop = time.perf_counter() + MOST_SECONDS
    wrong = [answer for case in cases for answer in answer_in(judgement, case) if answer.wrong]
    if not wrong:
        return []
    larger: list[Answer] = []
    right: list[Answer] = []
    for case in grown(judgement.impl, cases[0], judgement.device):
        if len(larger) == MOST_GROWN or time.perf_counter() > stop:
            break
        for answer in [] if case in cases else answer_in(judgement, case):
            (larger if answer.wrong else right).append(answer)
    answers = [*larger, *wrong]
    shifted = answers[0].case.but(regime="shifted_up")
    if lines := statements(answers, right, _table(judgement, cases[0]), shown=wrong[0]):
        return [line + _right_if_swapped(judgement, answers) for line in lines]
    return rounding_of(answers, lambda: answer_in(judgement, shifted))


def _table(judgement: Judgement, case: Case) -> tuple[Mistake, ...]:
    """Return the mistakes that may explain a case.

    A kernel that is right without neighbours, new keys and splits makes a mistake of its form.
    """
    supports = judgement.impl.supports
    alone = case.but(**{name: FEATURES[name].values[0] for name in OF_FORM})
    if alone != case and supports.form != "parts" and any(not each.wrong for each in answer_in(judgement, alone)):
        return OF_FORMS
    return table_of(supports)


def _right_if_swapped(judgement: Judgement, answers: list[Answer]) -> str:
    """Return the end of a statement, if it holds for more queries than keys alone, or for fewer."""
    longer = {answer.case.seqlen_q - answer.case.seqlen_k > 0 for answer in answers}
    case = answers[0].case
    aligned = case.causal or case.window is not None
    if len(longer) > 1 or not aligned or any(answer.case.seqlen_q == answer.case.seqlen_k for answer in answers):
        return ""
    swapped = answer_in(judgement, case.but(seqlen_q=case.seqlen_k, seqlen_k=case.seqlen_q))
    if not swapped or swapped[0].wrong:
        return ""
    return f"; right with {'fewer' if longer.pop() else 'more'} queries than keys"


def answer_in(judgement: Judgement, case: Case) -> list[Answer]:
    """Return the answer of a plain call in a list, or [] if there is none."""
    impl, plan = judgement.impl, judgement.plan
    if str(case) in plan.lost or unsupported(impl, case) is not None:
        return []
    judgement.write_down(case)
    trial = plan.trial(impl, case)

    def form_of(precision: Precision) -> str:
        return oracle.form_of(case.regime, case.dtype, precision, case.softcap)

    try:
        with blaming_calls(trial, judgement.test):
            answer = answer_of(impl, case, trial.x, trial.run(backward=trial.backward), form_of)
    except LawBroken as broken:
        judgement.check_context(trial, broken)
        return []
    except (Undecided, ContractError):
        return []
    return [answer]
