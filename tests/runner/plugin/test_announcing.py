"""Tests what a run says before it judges."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from flash_attest.impls.contract.entry import Entry, Unloadable
from flash_attest.runner.plugin.announcing import announcement, facts
from flash_attest.runner.profiles import PROFILES

LEFT = [("test_a", "mine"), ("test_b", "mine"), ("test_a", "hers")]


def options(**changed) -> SimpleNamespace:
    given = dict(shard=None, device="cpu", case=None, profile_name="smoke", profile=PROFILES["smoke"], seed=3)
    given |= dict(isolated=True, may_isolate=True, workers=4, law_time_limit=0.0, time_limit=0.0)
    return SimpleNamespace(**given | changed)


CHOSEN = SimpleNamespace(untrusted=False, elsewhere={}, entries=[])


@pytest.mark.parametrize(
    ("left", "kept", "before", "line"),
    [
        (LEFT[:1], 0, 0.0, "judges 1 law"),
        (LEFT, 0, 0.0, "judges 2 laws on 2 implementations"),
        (LEFT, 0, 800.0, "judges 2 laws on 2 implementations, about 3 min as before"),
        (LEFT[:2], 1, 0.0, "judges 2 laws, and keeps 1 verdict of the earlier run"),
        ([], 17, 0.0, "judges 0 laws, and keeps 17 verdicts of the earlier run"),
    ],
)
def test_it_says_what_is_left_and_how_long_it_took(left, kept, before, line):
    assert announcement(left, kept, before, options(), CHOSEN) == [f"flash-attest: {line}"]


def test_implementations_of_another_device_have_a_line():
    elsewhere = {"torch_flex": "runs on cuda only; this run judges on cpu", "other": "runs on cuda only"}
    _, line = announcement(LEFT, 0, 0.0, options(), SimpleNamespace(**vars(CHOSEN) | {"elsewhere": elsewhere}))
    assert line == "flash-attest: not judged here: torch_flex, other (runs on cuda only)"


def test_a_file_that_cannot_be_loaded_is_no_law():
    chosen = SimpleNamespace(**vars(CHOSEN) | {"entries": [Entry(Unloadable("hers", "no IMPL"), "hers.py")]})
    (line,) = announcement(LEFT, 0, 0.0, options(), chosen)
    assert line == "flash-attest: judges 2 laws; 1 file cannot be loaded: hers"


def test_the_header_says_on_which_cases():
    (line,) = facts(options(), CHOSEN, Path("attest-report"))
    assert line == "flash-attest: judges on cpu, profile smoke (2 cases a law), seed 3, report in attest-report/"
    (line,) = facts(options(case="seqlen_q=4"), CHOSEN, Path("r"))
    assert line == "flash-attest: judges on cpu, one given case, report in r/"
    _, line = facts(options(law_time_limit=0.5, time_limit=600.0), CHOSEN, Path("r"))
    assert line == "flash-attest: at most 0.5 s for a law, at most 10 min for the run"
    _, line = facts(options(isolated=False), CHOSEN, Path("r"))
    assert line.endswith("which a crash ends (the plug-ins use CUDA when they are imported)")


def test_with_untrusted_a_crash_ends_the_kernel_process_alone():
    chosen = SimpleNamespace(**vars(CHOSEN) | {"untrusted": True})
    _, laws, untrusted = facts(options(isolated=False, may_isolate=False), chosen, Path("r"))
    assert laws == "flash-attest: laws are judged in the pytest process"
    assert "called, in a kernel process" in untrusted
