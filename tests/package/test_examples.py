"""The examples of an installation are copied and judged as in docs/use/first-verdict.md."""

import pytest

EXACTLY = "query_sees_exactly_its_prefix"


@pytest.fixture(scope="session")  # the last test runs after the tests of other files, once Triton is installed
def copied(installed, folder):
    """Copy every listed example."""
    here = folder / "examples"
    here.mkdir()
    listed = installed.run("flash-attest", "examples", folder=here).stdout.splitlines()
    names = [line.split()[0] for line in listed]
    assert {"one_key_short", "own_repository"} <= set(names), listed
    run = installed.run("flash-attest", "examples", *names, folder=here)
    assert run.returncode == 0 and run.stdout.splitlines()[0] == "one_key_short.py", run.stdout
    return here


def test_the_cuda_kernel_is_judged(installed, copied):
    law = "out_matches_the_definition"
    run = installed.run(
        "flash-attest", "check", "flash_forward.py", "-n", 0, "--profile", "smoke", "--law", law, folder=copied
    )
    assert run.returncode == 0 and run.stdout.endswith("\ngreen: 1 law holds\n"), run.stdout


def test_the_repository_of_a_kernel_author_needs_no_gpu(with_triton, copied):
    chosen = f"contract or {EXACTLY} or rounding_allows"
    run = with_triton.run("pytest", "-k", chosen, folder=copied / "own_repository")
    assert run.returncode == 0 and "flash-attest: green: 2 laws hold\n" in run.stdout, run.stdout
    assert "8 passed" in run.stdout, run.stdout
