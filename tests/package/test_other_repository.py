"""A repository without attention does not notice the plug-in: options, markers, time, memory."""

import re
import time
from statistics import median

import pytest

OFF = ("-p", "no:flash-attest")  # a run without the plug-in
# Prints CPU seconds, because other programs also use the machine, and the peak memory minus the
# parent's.
PROGRAM = """
import sys, time, pytest
status = pytest.main(sys.argv[1:])
used = time.process_time()
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print()
print(used, int(peak) / 1024)
sys.exit(status)
"""
MOST_SECONDS, MOST_MIB = 0.02, 2.0
FEWEST, MOST = 4, 40  # rounds; more than the fewest only while a difference exceeds its bound


@pytest.fixture(scope="module")
def other(folder):
    repository = folder / "other"
    repository.mkdir()
    (repository / "test_other.py").write_text(
        "import sys\n\ndef test_other():\n    assert 'torch' not in sys.modules\n"
    )
    return repository


def test_its_tests_pass_and_import_no_torch(installed, other):
    run = installed.run("pytest", folder=other)
    assert run.returncode == 0 and re.search(r"^plugins: .*flash-attest-\d", run.stdout, re.MULTILINE), run.stdout
    run = installed.run("pytest", *OFF, folder=other)
    assert run.returncode == 0 and "flash-attest" not in run.stdout, run.stdout


@pytest.mark.parametrize(
    ("asked", "pattern", "prefix"),
    [
        ("--help", r"^  (-[-\w]+)", "--attest-"),
        ("--help", r"^  (\w+) \(\w+\):", "attest_"),
        ("--markers", r"^@pytest\.mark\.(\w+)", None),
    ],
    ids=["options", "settings", "markers"],
)
def test_what_it_adds_has_a_prefix(installed, other, asked, pattern, prefix):
    with_it, without = (
        set(re.findall(pattern, installed.run("pytest", asked, *options, folder=other).stdout, re.MULTILINE))
        for options in ((), OFF)
    )
    assert without < with_it if prefix else without == with_it
    assert not [name for name in with_it - without if not name.startswith(prefix)]


@pytest.mark.parametrize("arguments", [("--version",), ("-q", "-k", "nothing")], ids=["version", "empty run"])
def test_it_costs_nothing_to_speak_of(installed, other, arguments, capsys):
    """Runs with and without the plug-in alternate.

    The minimum of many runs is the cost on a quiet machine.
    """
    wall, used, peak = ({True: [], False: []} for _ in range(3))
    for n in range(MOST + 1):
        for plugged in (True, False):
            began = time.perf_counter()
            run = installed.run("python", "-c", PROGRAM, *(() if plugged else OFF), *arguments, folder=other)
            if n:  # the first run compiles the modules
                wall[plugged].append(time.perf_counter() - began)
                for values, word in zip((used, peak), run.stdout.split()[-2:], strict=True):
                    values[plugged].append(float(word))
        more = [min(values[True]) - min(values[False]) for values in (used, peak) if n]
        if n >= FEWEST and more[0] < MOST_SECONDS and more[1] < MOST_MIB:
            break
    shown = [f"{1000 * median(used[on]):.0f} ms of CPU, {1000 * median(wall[on]):.0f} ms, {median(peak[on]):.1f} MiB"
             for on in (True, False)]  # fmt: skip
    with capsys.disabled():
        print(f"\npytest {' '.join(arguments)}, medians of {n} runs: {shown[0]}; without the plug-in {shown[1]}; "
              f"the least differ by {1000 * more[0]:.1f} ms and {more[1]:.2f} MiB")  # fmt: skip
    assert more[0] < MOST_SECONDS and more[1] < MOST_MIB
