"""Tests of comparisons: which laws got worse or better, and which z moved."""

from __future__ import annotations

import pytest

from flash_attest.runner.compare import compare
from tests.runner.page.data import environment, result

FAILS, PASSES = {"verdict": "fail", "reason": "wrong"}, {"verdict": "pass"}
KINDS = {
    "pass": PASSES, "fail": FAILS, "known": FAILS | {"known": "#1"}, "refused": {"verdict": "refused", "why": "not declared"},
    "unknown": {"verdict": "unknown", "why": "timed out"}, "elsewhere": {"verdict": "unknown", "why": "no sanitizer"},
}  # fmt: skip


def record(*results: dict, **facts: object) -> dict:
    return {"environment": environment(list(results), **facts), "results": list(results)}


def law(kind: str | None, n: int = 1, impl: str = "mine", **fields: object) -> list[dict]:
    return [] if kind is None else [result(impl, n, **KINDS[kind] | fields)]


def compared(before: str | None, after: str | None):
    """Compare two reports that also have a law in common, so that both have the implementation."""
    same = result("mine", 40)
    return compare(record(same, *law(before)), record(same, *law(after)))


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ("pass", "fail", "worse"), ("pass", "unknown", "worse"), ("pass", "refused", "worse"), ("pass", "known", "worse"),
        ("pass", "elsewhere", "worse"), ("refused", "unknown", "worse"), ("unknown", "fail", "worse"),
        ("known", "fail", "worse"), ("pass", None, "worse"), (None, "fail", "worse"),
        ("fail", "pass", "better"), ("unknown", "refused", "better"), ("fail", "known", "better"),
        ("refused", "elsewhere", "changed"), ("elsewhere", "refused", "changed"),
        ("refused", None, "gone"), ("fail", None, "gone"), (None, "pass", "new"), (None, "unknown", "new"),
    ],
)  # fmt: skip
def test_a_verdict_that_differs_is_worse_better_or_neither(before, after, where):
    found = compared(before, after)
    changes = {name: getattr(found, name) for name in ("worse", "better", "changed", "gone", "new")}
    assert {name: len(entries) for name, entries in changes.items() if entries} == {where: 1}
    (change,) = changes[where]
    assert (change.before, change.after) == (before or "", after or "")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_verdict_is_no_change(kind):
    found = compared(kind, kind)
    assert found.verdict == "nothing got worse: 2 laws compared"
    assert not (found.worse or found.better or found.changed or found.gone or found.new or found.moved)


def test_an_implementation_that_only_one_report_has_does_not_count():
    found = compare(record(*law("pass"), *law("pass", impl="old")), record(*law("pass"), *law("fail", impl="new")))
    assert (found.only_before, found.only_after, found.worse) == ({"old": 1}, {"new": 1}, [])


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (1.0, 2.0, True), (1.0, 1.99, False), (4.0, 2.0, True), (0.2, 0.9, False), (0.0, 1.1, True), (0.0, 0.0, False),
        (3.0, "inf", True), ("inf", "inf", False), ("nan", "nan", False), ("nan", 3.0, True),
    ],
)  # fmt: skip
def test_a_z_has_moved_if_it_doubled_or_halved_and_is_above_1(before, after, moved):
    found = compare(
        record(*law("pass", worst_z={"out": before, "lse": 0.1})), record(*law("pass", worst_z={"out": after}))
    )
    assert [(each.tensor, each.before, each.after) for each in found.moved] == [("out", before, after)] * moved
    assert not found.worse


def test_what_the_runs_do_not_have_in_common_is_listed():
    one, other = {"torch": "2.12", "triton": None}, {"torch": "2.13", "triton": None}
    found = compare(record(seed=0, versions=one), record(seed=7, versions=other))
    assert found.differs == [("seed", 0, 7), ("torch", "2.12", "2.13")]
