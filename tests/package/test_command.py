"""The command flash-attest in a user's folder, without Triton and Numba."""

import json

from tests.package.installation import replay_of

EXACTLY = "query_sees_exactly_its_prefix"
SMOKE = ("-n", 0, "--profile", "smoke")
HEADLINE = "query 64 sees 64 keys, should see 65: key 64 is missing\n"


def test_every_command_has_help(installed, folder):
    from flash_attest.command import COMMANDS

    printed = installed.run("flash-attest", "--help", folder=folder).stdout
    listed = [line.split()[0] for line in printed.splitlines() if line.startswith("  ")]
    assert listed == list(COMMANDS), printed
    for name in listed:
        run = installed.run("flash-attest", name, "--help", folder=folder)
        assert run.returncode == 0 and run.stdout.startswith(f"usage: flash-attest {name} "), run.stdout


def test_a_right_file_is_green(installed, hers):
    """The run has as many workers as there are cores, like most runs."""
    run = installed.run("flash-attest", "check", "alone.py", "--profile", "smoke", "--chapter", "causal", folder=hers)
    assert run.returncode == 0 and run.stdout.endswith("\ngreen: 5 laws hold; 1 does not apply\n"), run.stdout
    assert (hers / "attest-report" / "results.json").is_file()


def test_a_wrong_file_fails_and_so_does_its_replay_line(installed, hers):
    """Its kernel is in the module beside it."""
    report = hers / "report of check"
    report.mkdir()
    run = installed.run(
        "flash-attest", "check", "my kernels/wrong.py", "-n", 0, "--profile", "quick", "--law", EXACTLY, "--report", report,
        folder=hers,
    )  # fmt: skip
    assert run.returncode == 1 and HEADLINE in run.stdout, run.stdout
    (result,) = json.loads((report / "results.json").read_text())["results"]
    assert result["verdict"] == "fail" and result["impl"] == "one_key_short"
    line = replay_of(run.stdout)
    assert line.startswith(f"flash-attest check 'my kernels/wrong.py' --law {EXACTLY} --case 'seqlen_q=65 "), run.stdout
    again = installed.shell(line, hers)
    assert again.returncode == 1 and HEADLINE in again.stdout, again.stdout


def test_one_of_ours_is_judged(installed, hers):
    run = installed.run("flash-attest", "check", "python_tiled", *SMOKE, "--law", EXACTLY, folder=hers)
    assert run.returncode == 0 and run.stdout.endswith("\ngreen: 1 law holds\n"), run.stdout


def test_laws_are_listed(installed, folder):
    run = installed.run("flash-attest", "laws", "--json", folder=folder)
    laws = {law["name"]: law for law in json.loads(run.stdout)}
    assert len(laws) > 60 and laws[f"test_{EXACTLY}"]["planted"], run.stdout


def test_the_documents_are_there(installed, folder):
    listed = installed.run("flash-attest", "docs", folder=folder)
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    assert listed.returncode == 0 and {"reading-a-failure", "bugs"} <= names, listed.stdout
    shown = installed.run("flash-attest", "docs", "bugs#races", folder=folder)
    assert shown.stdout.startswith(f"{installed.root}/") and "\n## Races\n" in shown.stdout, shown.stdout


def test_doctor_says_what_is_missing(installed, folder):
    run = installed.run("flash-attest", "doctor", folder=folder)
    assert run.returncode == 0 and run.stdout.endswith("Implementations can be judged here.\n"), run.stdout
    lines = {line.split()[1]: line for line in run.stdout.splitlines()[:-1]}
    for name, extra in (("Triton", "triton"), ("Numba", "numba"), ("matplotlib", "bench")):
        assert lines[name].startswith("missing"), run.stdout
        assert lines[name].endswith(f": pip install 'flash-attest[{extra}]'"), run.stdout


def test_a_race_in_cuda_is_traced(installed, hers):
    """g++ compiles the file with headers and sources of the installed package."""
    run = installed.run("flash-attest", "trace", "gpu/differences.py", folder=hers)
    assert run.returncode == 1 and run.stdout.endswith("\n1 found in 1 launch\n"), run.stdout
    assert "read after write, no barrier between, differences.cu:5 and differences.cu:6\n" in run.stdout, run.stdout


def test_a_sweep_of_seconds(installed, hers):
    run = installed.run(
        "flash-attest", "sweep", "--impl-from", "alone.py", "--runs", 2, "--seed", 1, "--workers", 1, folder=hers
    )
    assert run.returncode == 0 and "clean since" in run.stdout, run.stdout
    assert {"index.html", "summary.json", "sweep.db"} <= {path.name for path in (hers / "attest-sweep").iterdir()}
