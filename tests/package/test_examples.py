"""The examples that an installation brings: copied to a folder, and judged there as docs/use/first-verdict.md does."""

import pytest

from tests.package.installation import replay_of

EXACTLY = "query_sees_exactly_its_prefix"


@pytest.fixture(scope="session")  # the last test here runs after those of other files, when Triton is there
def copied(installed, folder):
    """Copy every example that is listed."""
    here = folder / "examples"
    here.mkdir()
    listed = installed.run("flash-attest", "examples", folder=here).stdout.splitlines()
    names = [line.split()[0] for line in listed]
    assert {"one_key_short", "own_repository"} <= set(names), listed
    ran = installed.run("flash-attest", "examples", *names, folder=here)
    assert ran.returncode == 0 and ran.stdout.splitlines()[0] == "one_key_short.py", ran.stdout
    return here


def test_the_broken_kernel_fails_until_it_is_repaired(installed, copied):
    file = copied / "one_key_short.py"
    ran = installed.run(
        "flash-attest", "check", file.name, "-n", 0, "--profile", "quick", "--law", EXACTLY, folder=copied
    )
    headline = "query 64 sees 64 keys, should see 65: key 64 is missing\n"
    assert ran.returncode == 1 and headline in ran.stdout, ran.stdout
    assert file.read_text().count("j >= last") == 1
    file.write_text(file.read_text().replace("j >= last", "j > last"))
    again = installed.shell(replay_of(ran.stdout), copied)
    assert again.returncode == 0 and "green: 1 law holds\n" in again.stdout, again.stdout


def test_the_cuda_kernel_is_judged(installed, copied):
    law = "out_matches_the_definition"
    ran = installed.run(
        "flash-attest", "check", "flash_forward.py", "-n", 0, "--profile", "smoke", "--law", law, folder=copied
    )
    assert ran.returncode == 0 and "green: 1 law holds\n" in ran.stdout, ran.stdout


def test_the_repository_of_a_kernel_author_needs_no_gpu(with_triton, copied):
    chosen = f"contract or {EXACTLY} or rounding_allows"
    ran = with_triton.run("pytest", "-n", 2, "-k", chosen, folder=copied / "own_repository")
    assert ran.returncode == 0 and "flash-attest: green: 2 laws hold\n" in ran.stdout, ran.stdout
    assert "8 passed" in ran.stdout, ran.stdout
