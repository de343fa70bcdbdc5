"""Removes waits, fences and barriers of our kernels for sm_90, changes mbarriers, one at a time.

Either the tracer or the values show it, or the instruction is not needed for a reason that
reasons.py knows.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.emulator.triton.reasons import REASONS
from tests.emulator.triton.removals import CHANGES, OPCODES
from tests.runs import python

pytest.importorskip("triton")
WGMMA = OPCODES[:3]
BIAS = ["float16", 64, False, False, None, True]
STAGES = {"mbarrier wait": 12, "mbarrier arrive": 6, "mbarrier bytes": 3}


def removed(way: list | str, *opcodes: str) -> list[dict]:
    """Return the removals of these instructions in the kernels of one way to call them."""
    done = python("-m", "tests.emulator.triton.removals", json.dumps(way), *opcodes, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def unneeded(removals: list[dict]) -> list[str]:
    """Return the removals that do not show, each with its reason.

    Fails if one has none.
    """
    silent = [removal for removal in removals if not removal["shown"]]
    assert not [removal for removal in silent if not removal["reason"]]
    return [removal["reason"] for removal in silent]


def test_what_orders_wgmma_in_the_forward_is_found(gxx):
    found = removed(["float16", 64, False, False, "forward_kernel"], *WGMMA)
    assert {removal["kernel"] for removal in found} == {"forward_kernel"}
    assert {removal["opcode"] for removal in found} == set(WGMMA)
    assert all(removal["shown"] for removal in found)


@pytest.mark.thorough
def test_what_orders_wgmma_is_found_or_unneeded(gxx):
    found = removed(["float16", 64], *WGMMA)
    kernels = {"forward_kernel", "dq_kernel", "dk_dv_kernel"}
    assert {removal["kernel"] for removal in found} == kernels
    assert Counter(removal["opcode"] for removal in found) == {
        "wgmma.wait_group": 16, "wgmma.fence": 18, "fence.proxy.async": 9,
    }  # fmt: skip
    assert len(unneeded(found)) <= 7
    needed = [r for r in found if r["kernel"] == "forward_kernel" or r["opcode"] == "wgmma.wait_group"]
    assert all(removal["shown"] for removal in needed)


@pytest.mark.thorough  # test_by_tma.py hands over stages too early, and without waiting
def test_every_mbarrier_fence_and_wait_of_tma_is_found_or_unneeded(gxx):
    """Producer and consumers of the forward by TMA hand over stages of K and V, and Q once."""
    found = removed("tma")
    assert {removal["opcode"] for removal in found} == set(CHANGES)
    assert len(unneeded(found)) <= 37
    stages = [removal for removal in found if removal["opcode"] in STAGES]
    assert Counter(removal["opcode"] for removal in stages) == STAGES and len(unneeded(stages)) <= 4


@pytest.mark.thorough
@pytest.mark.parametrize(
    "way",
    [
        ["float16", 64], ["float16", 128], ["bfloat16", 64], ["float16", 64, True], ["float32", 64, False, True],
        BIAS, ["float32", 64, True, True, None, True],
    ],
    ids=str,
)  # fmt: skip
def test_every_wait_fence_and_barrier_is_found_or_unneeded(way, gxx):
    found = removed(way)
    assert len(found) > 40
    unneeded(found)


@pytest.mark.thorough
def test_the_reasons_occur(gxx):
    seen = {reason for way in (["float16", 64], ["bfloat16", 64], BIAS, "tma") for reason in unneeded(removed(way))}
    assert set(REASONS) <= seen
