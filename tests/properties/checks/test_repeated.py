"""The conditions under which a call is repeated: whether its case is large."""

from dataclasses import replace

import pytest

from flash_attest.properties.checks import repeated
from flash_attest.races.repeat import Repeats
from flash_attest.races.tracing import MOST_PRODUCTS
from tests.trials import trial


@pytest.mark.parametrize("seqlen_q, large", [(MOST_PRODUCTS // 2**10, False), (MOST_PRODUCTS // 2**10 + 1, True)])
def test_a_case_is_large_that_would_be_traced_for_long(seqlen_q, large, monkeypatch):
    settings = []

    def compare_repeats(launch, n, perturbations, setting, inexact):
        settings.append(setting)
        return Repeats(n, {})

    monkeypatch.setattr(repeated, "compare_repeats", compare_repeats)
    one = trial()
    one = replace(one, case=one.case.but(seqlen_q=seqlen_q, seqlen_k=2**7, batch=1, nheads=1, nheads_k=1))
    repeated.repeats_of(one, one.x, 1, inexact=lambda name: False)
    assert [setting.large for setting in settings] == [large]
