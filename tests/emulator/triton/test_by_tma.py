"""Kernels with TMA, mbarriers and warps of their own for copies: right ones, and wrong ones of an
author and of a compiler.

The kernels are in by_tma.py, which a process of its own runs for sm_90.
"""

from __future__ import annotations

import json

import pytest

from tests.runs import python

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def told(gxx):
    """Return what by_tma.py prints: kernel -> {"wrong by": ..., "findings": [...]}."""
    done = python("-m", "tests.emulator.triton.by_tma", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kernel", ("matmul", "own"))
def test_a_right_kernel_has_no_finding(told, kernel):
    assert told[kernel]["wrong by"] < 2**-9 and told[kernel]["findings"] == []


@pytest.mark.parametrize("kernel", ("rank 3", "own, warps apart"))
def test_mbarriers_that_triton_leaves_where_data_come_are_the_only_finding(told, kernel):
    """Triton 3.7.1 does so in each loop that it divides among warps (finding 140). Without a
    finding here, a later Triton is right, and triton_fa2_tma may divide its loop.
    """
    (finding,) = told[kernel]["findings"]
    assert told[kernel]["wrong by"] < 2**-9 and "overwritten without mbarrier.inval" in finding


def test_descriptors_of_a_kernel_need_an_allocator(told):
    """The launch raises what it raises on a GPU."""
    assert "no allocator was set" in told["no allocator"]["raised"]


def test_a_stage_that_is_released_before_it_is_read_is_a_race(told):
    """Triton 3.7.1 signals that a stage of K is empty before the product that reads it, if the
    descriptor has four dimensions. Without a finding here, a later Triton is right.
    """
    findings = told["rank 4"]["findings"]
    assert any("race" in each and "tl.dot(q, k.T)" in each for each in findings)


def test_a_consumer_that_releases_too_early_is_found(told):
    """The consumer of `matmul` arrives on the empty mbarrier before its product."""
    assert any(each.startswith(("race", "async")) for each in told["matmul, released too early"]["findings"])


def test_a_producer_that_does_not_wait_is_found(told):
    """The producer overwrites stages that are not empty."""
    assert told["matmul, no wait"]["findings"]
