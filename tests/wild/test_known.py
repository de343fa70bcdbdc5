"""Adapters list the laws that fail by their reasons; what they list exists."""

import os
import re
import runpy
import sys
from unittest import mock

import pytest

from flash_attest import KnownFailure, adapters, wild
from flash_attest.places import ROOMS
from flash_attest.properties.judging.conformance import wrong_cases
from flash_attest.properties.judging.plan import CONTRACT_CHECK
from flash_attest.properties.law import laws
from flash_attest.wild.known import Because, known


def everywhere(*failure):
    return dict.fromkeys(("cpu", "cuda"), KnownFailure(*failure))


def test_each_law_of_a_text_fails_in_the_case_and_in_its_own_fields():
    failing = Because("finding #7: twice", "seqlen_q=1 seqlen_k=1 headdim=64").fail("""
        out_scales_with_v copies_agree
        repeats_agree seqlen_k=3
            regime=flat
    """)
    assert failing == {
        "out_scales_with_v": everywhere("finding #7: twice", "seqlen_q=1 seqlen_k=1 headdim=64"),
        "copies_agree": everywhere("finding #7: twice", "seqlen_q=1 seqlen_k=1 headdim=64"),
        "repeats_agree": everywhere("finding #7: twice", "seqlen_q=1 seqlen_k=3 headdim=64 regime=flat"),
    }
    assert Because("#7").fail("copies_agree nheads=2") == {"copies_agree": everywhere("#7", "nheads=2")}


def test_laws_may_fail_on_one_device_and_not_on_every_run():
    on_a_cpu, on_a_gpu = Because("#7", "batch=2", on="cpu"), Because("#7", on="cuda", every_run=False)
    assert known(on_a_cpu.fail("copies_agree"), on_a_gpu.fail("copies_agree repeats_agree")) == {
        "copies_agree": {"cpu": KnownFailure("#7", "batch=2"), "cuda": KnownFailure("#7", every_run=False)},
        "repeats_agree": {"cuda": KnownFailure("#7", every_run=False)},
    }


def test_parts_stay_as_they_are():
    one, other = Because("#7", on="cpu").fail("copies_agree"), Because("#8", on="cuda").fail("copies_agree")
    known(one, other)
    assert (one, other) == (
        {"copies_agree": {"cpu": KnownFailure("#7")}},
        {"copies_agree": {"cuda": KnownFailure("#8")}},
    )


@pytest.mark.parametrize("parts", [
    ("copies_agree repeats_agree copies_agree seed=1",), ("copies_agree", "repeats_agree copies_agree"),
])  # fmt: skip
def test_a_law_has_one_reason_on_a_device(parts):
    with pytest.raises(ValueError, match=r"^known failures name copies_agree twice for cpu and cuda$"):
        known(*(Because("#7").fail(part) for part in parts))


@pytest.mark.parametrize("laws", ["", "seed=1 copies_agree"])
def test_a_text_begins_with_a_law(laws):
    with pytest.raises(ValueError, match=re.escape(f"fail({laws!r}): should begin with a law")):
        Because("#7").fail(laws)


@pytest.fixture
def stand_ins(monkeypatch):
    """Lets adapters be read without their packages."""
    for module, name in ((wild, "module_of"), (wild, "file_of"), (adapters, "imported")):
        monkeypatch.setattr(module, name, lambda *names: mock.MagicMock())
    with mock.patch.dict(sys.modules), mock.patch.dict(os.environ):
        yield


def test_adapters_name_laws_and_cases_that_are_judged(stand_ins):
    names = {*laws(), CONTRACT_CHECK}
    for key in wild.PACKAGES | wild.SOURCES:
        for impl in runpy.run_path(str(ROOMS / "wild" / f"{key}.py"))["IMPLS"]:
            assert set(impl.known_failures) <= names, impl.name
            for failure in {one for failures in impl.known_failures.values() for one in failures.values()}:
                assert failure.why.startswith("finding #"), impl.name
            for device in impl.devices:
                assert wrong_cases(impl, device) == [], impl.name
            assert without_a_case(impl) == [], impl.name


def without_a_case(impl):
    """Return the laws that must fail on a CPU, though no case is named that shows it."""
    known = {name: failures["cpu"] for name, failures in impl.known_failures.items() if "cpu" in failures}
    drawn = [law for law in laws().values() if law.device != "cuda" and not law.once]
    return [law.name for law in drawn if law.name in known and known[law.name].every_run and not known[law.name].case]
