"""Small Numba kernels, judged in many orders of threads: half of them correct, half made faulty by
an edit of their Python.

A correct kernel has no finding and the expected values in every order of threads, warps and blocks.
A faulty kernel has the expected finding in every order, with the lines of the Python source, and no
finding of another kind. Without --thorough, every second kernel runs in 3 of 20 orders.
"""

from __future__ import annotations

import inspect

import pytest
import torch

from flash_attest.races.finding import Finding
from tests.emulator.numba.faults import FAULTY, Fault
from tests.emulator.numba.subjects import RIGHT

ORDERS = [range(3), pytest.param(range(3, 20), marks=pytest.mark.thorough)]  # seeds


def every_second(names):
    """Mark every second name as thorough, because each name compiles a kernel."""
    return [pytest.param(name, marks=pytest.mark.thorough if n % 2 else ()) for n, name in enumerate(names)]


@pytest.mark.parametrize("seeds", ORDERS, ids=str)
@pytest.mark.parametrize("name", every_second(RIGHT))
def test_right_in_every_order(name: str, seeds: range):
    subject = RIGHT[name]
    kernel, want = getattr(subject.module, name), subject.want(*subject.inputs())
    for seed in seeds:
        findings, out = subject.found(kernel, seed, switch=0.1 * (seed % 3))
        assert not findings, "\n".join([f"seed={seed}", *map(str, findings)])
        torch.testing.assert_close(out, want, rtol=subject.tolerance, atol=subject.tolerance)


@pytest.mark.parametrize("seeds", ORDERS, ids=str)
@pytest.mark.parametrize("name", every_second(FAULTY))
def test_found_in_every_order(name: str, seeds: range):
    fault = FAULTY[name]
    kernel = fault.kernel()
    for seed in seeds:
        findings, _ = fault.subject.found(kernel, seed)
        shown = "\n".join([f"seed={seed}", *map(str, findings)])
        assert {finding.kind.value for finding in findings} <= set(fault.kinds), shown
        texts = [site.text for finding in findings if finding.kind.value == fault.kinds[0] for site in finding.sites]
        missing = [part for part in fault.lines if not any(part in text for text in texts)]
        assert texts and not missing, f"not named: {missing}\n{shown}"
        assert all(of_the_kernel(finding, fault) for finding in findings), shown


def of_the_kernel(finding: Finding, fault: Fault) -> bool:
    """Return whether all lines are in the kernel and the edited function."""
    places = set()
    for name in filter(None, (fault.subject.kernel, fault.of, *CALLED.get(fault.subject.kernel, ()))):
        code, first = inspect.getsourcelines(getattr(fault.subject.module, name).py_func)
        places |= {(fault.subject.module.__file__, line) for line in range(first, first + len(code))}
    return all((site.file, site.line) in places for site in finding.sites)


CALLED = {"scaled": ("stored", "smallest_and_largest")}


def test_the_battery_is_large_and_half_of_it_faulty():
    assert len(RIGHT) >= 40 and len(FAULTY) >= 40
