"""A Triton test that was written for a GPU runs on a machine without one.

It runs after all tests that have to run without Triton.
"""

import pytest

TEST = "gpu/test_scale.py"


def test_without_triton_it_says_so(installed, hers):
    run = installed.run("flash-attest", "emulate", "--", "pytest", TEST, folder=hers)
    assert run.returncode == pytest.ExitCode.INTERRUPTED and "No module named 'triton'" in run.stdout, run.stdout


def test_it_passes_with_a_setting(with_triton, hers):
    alone = with_triton.run("pytest", TEST, folder=hers)
    assert alone.returncode == pytest.ExitCode.TESTS_FAILED and "2 failed" in alone.stdout, alone.stdout
    run = with_triton.run("pytest", "-o", "attest_emulate=true", TEST, folder=hers)
    assert run.returncode == 0 and "2 passed" in run.stdout, run.stdout


def test_it_passes_in_the_emulator_and_its_launches_are_traced(with_triton, hers):
    run = with_triton.run("flash-attest", "emulate", "--trace", "--", "pytest", TEST, folder=hers)
    assert run.returncode == 0 and "2 passed" in run.stdout, run.stdout
    assert "traced: 2 launches, no finding\n" in run.stdout, run.stdout


def test_nothing_is_broken(with_triton):
    assert "No broken requirements found." in with_triton.pip("check")
