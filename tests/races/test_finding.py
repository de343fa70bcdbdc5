"""Findings: which findings are the same, and which could have changed a result."""

from dataclasses import replace

import pytest

from flash_attest.emulator.observation import Action, Apart, Kind, Side, Site, Space
from flash_attest.properties.failures import findings_of
from flash_attest.races.finding import Finding, merge

WRITES, READS = (
    Side(Action(what), Site("a.cu", line), (0, 0, 0), (0, 0, 0)) for what, line in (("write", 5), ("read", 6))
)
EQUAL = Finding(Kind.RACE, Space.SHARED, "tile", (3,), READS, WRITES, same_value=True, count=2)
OTHER = replace(EQUAL, index=(4,), same_value=False)


@pytest.mark.parametrize("order", [(EQUAL, OTHER), (OTHER, EQUAL)])
@pytest.mark.parametrize("unsure", [False, None])
def test_a_write_that_kept_the_value_hides_none_that_did_not(order, unsure):
    findings = []
    merge(findings, [replace(f, same_value=unsure) if f is OTHER else f for f in order])
    (one,) = findings
    assert (one.index, one.same_value, one.keeps_values, one.count) == ((4,), unsure, False, 4)


def test_what_is_found_does_not_depend_on_the_order_or_the_tensor():
    assert EQUAL.what == replace(EQUAL, first=WRITES, second=READS, tensor="other").what
    assert EQUAL.key != replace(EQUAL, tensor="other").key
    assert EQUAL.what != replace(EQUAL, first=replace(READS, site=Site("a.cu", 7))).what


def test_findings_without_a_line_are_told_apart_by_their_words():
    launch = Finding(Kind.LAUNCH, Space.NONE, "", None, None, detail="invalid argument")
    assert launch.what != replace(launch, detail="too many resources requested").what


def test_what_changes_values_comes_first():
    broken = findings_of([EQUAL, replace(OTHER, tensor="x")])
    assert broken.headline.startswith("race: x[4]") and [f.keeps_values for f in broken.found] == [False, True]


def test_two_blocks_come_first_then_two_warps_then_two_lanes():
    lanes, warps, blocks = (replace(OTHER, tensor=apart.name, apart=apart) for apart in Apart)
    benign, outside = (
        replace(blocks, same_value=True, tensor="same"),
        Finding(Kind.OUTSIDE, Space.GLOBAL, "x", None, READS),
    )
    ranked = findings_of([lanes, benign, warps, outside, blocks]).found
    assert [finding.tensor for finding in ranked] == ["x", "BLOCKS", "WARPS", "LANES", "same"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_equal_findings_the_one_of_two_blocks_stays(order):
    pair, findings = [replace(OTHER, index=(int(apart),), apart=apart) for apart in (Apart.LANES, Apart.BLOCKS)], []
    merge(findings, [pair[n] for n in order])
    assert [(finding.index, finding.count) for finding in findings] == [((3,), 4)]
