"""`flash-attest emulate`: test files and scripts that want a GPU run unchanged, here and in the
processes that they start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flash_attest.command import emulate
from tests import runs
from tests.places import ROOT

GPU_STYLE = ROOT / "tests" / "emulator" / "gpu_style"
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the command changes nothing")
ASKS = "import sys, torch; sys.exit(0 if torch.cuda.is_available() and torch.ones(1, device='cuda').is_cuda else 7)"
# What makes a process ask: importing torch takes seconds, and the emulation begins with it.
WAITS = "import sys; sys.exit(0 if 'flash_attest.emulated' in sys.modules else 7)"


@pytest.fixture
def folder(tmp_path):
    """A folder with the files for a GPU."""
    return shutil.copytree(GPU_STYLE, tmp_path / "theirs")


@pytest.fixture
def emulated(folder):
    """Return emulated(arguments of the command) -> its result, run in the folder by a fork that has
    torch.
    """

    def run(*arguments: str, **environment: str) -> runs.Run:
        return runs.check("emulate", *arguments, folder=folder, **environment)

    return run


@pytest.fixture
def started(folder):
    """Return started(arguments of the command) -> its result, run in the folder by a new Python.

    The command's processes import torch themselves, and the emulation begins then.
    """

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
        path = os.pathsep.join(filter(None, [str(ROOT), environment.pop("PYTHONPATH", "")]))
        return subprocess.run(
            [sys.executable, "-m", "flash_attest", "emulate", *arguments],
            cwd=folder, capture_output=True, text=True, env={**os.environ, **environment, "PYTHONPATH": path},
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    "module, files, passed",
    [
        ("triton", ["test_vector_add.py", "test_softmax.py", "test_layer_norm.py"], "23 passed, 1 skipped"),
        ("numba.cuda", ["test_numba_and_cuda.py"], "4 passed"),
    ],
)
def test_tests_for_a_gpu_run_unchanged(emulated, module, files, passed):
    pytest.importorskip(module)
    done = emulated("--", "pytest", "-q", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0 and passed in done.stdout, done.stdout


def test_without_it_they_are_skipped_or_fail(folder):
    pytest.importorskip("triton")
    files = "test_layer_norm.py", "test_softmax.py"
    done = runs.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *files, folder=folder)
    assert "passed" not in done.stdout and "skipped" in done.stdout


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_trace_names_the_race_once_with_its_lines_and_test(emulated, folder, workers):
    """The workers of pytest-xdist are new processes."""
    pytest.importorskip("triton")
    (folder / "test_racy.py").write_text("from racy import test_it_runs\n\ndef test_again():\n    test_it_runs()\n")
    asked = "--dist", "load", "--tx", f"{workers}*popen"  # -n would be forks: tests/spares.py
    done = emulated("--trace", "--", "pytest", "-q", "-p", "no:cacheprovider", *asked, "test_racy.py")
    assert "2 passed" in done.stdout and done.returncode == 1, done.stdout
    assert done.stdout.count("race: scratch") == 1 and "traced: 2 launches, 1 finding" in done.stdout
    assert "racy.py:13  thread 96 of block 0 reads   sums = tl.load(scratch + i)[None, :]" in done.stdout
    assert "test_racy.py::test_it_runs" in done.stdout and "test_racy.py::test_again" in done.stdout


def test_a_script_is_traced_and_the_processes_that_it_starts(emulated, folder):
    pytest.importorskip("triton")
    done = emulated("--trace", "--seed", "5", "racy.py")
    assert done.returncode == 1 and "race: scratch" in done.stdout and "traced: 2 launches, 1 finding" in done.stdout
    (folder / "starts.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'racy.py'], check=True)\n"
    )
    done = emulated("--trace", "--", "python", "starts.py")
    assert done.returncode == 1 and "traced: 2 launches, 1 finding" in done.stdout


def test_a_right_program_has_no_finding(emulated, folder):
    pytest.importorskip("triton")
    racy = (folder / "racy.py").read_text()
    store = "    tl.store(scratch + i, tl.sum(rows, 1))\n"
    (folder / "right.py").write_text(racy.replace(store, store + "    tl.debug_barrier()\n"))
    done = emulated("--trace", "--", "right.py")
    assert (done.returncode, done.stdout) == (0, "\ntraced: 2 launches, no finding\n")


def test_a_trace_of_nothing_proves_nothing(emulated):
    done = emulated("--trace", "--", "python", "-c", WAITS)
    assert done.returncode == 2 and "traced: no kernel ran in the emulator, so nothing was checked" in done.stdout


AGAIN = "import flash_attest; flash_attest.emulate()"
AS_CUDA = "from flash_attest.emulator.triton import as_cuda\nwith as_cuda(): pass"


@pytest.mark.parametrize(
    "command, status",
    [
        (["python", "-c", f"{AGAIN}\n{AS_CUDA}\n{ASKS}"], 0),
        (["python", "-c", WAITS], 0),
        ([sys.executable, "-c", WAITS], 0),
        (["python", "-m", "asks"], 0),
        (["python", "asks.py", "5"], 5),
        (["asks.py", "text"], 1),
        (["asks.py", "error"], 1),
        (["sh", "-c", f'exec {sys.executable} -c "{WAITS}"'], 0),
        (["none_such.py"], 2),
        (["none-such"], 2),
    ],
)
def test_the_exit_status_is_the_programs(emulated, folder, command, status):
    (folder / "asks.py").write_text(
        "import sys\nassert __name__ == '__main__' and sys.path[0]\n"
        "if sys.argv[1:] == ['error']:\n    raise ValueError('of the script')\n"
        "if sys.argv[1:]:\n    sys.exit(int(sys.argv[1]) if sys.argv[1].isdigit() else 'a message')\n" + ASKS
    )
    done = emulated("--", *command)
    assert done.returncode == status, done.stdout
    for argument, message in (("text", "a message"), ("error", "ValueError: of the script")):
        assert (message in done.stdout) == (argument in command)


def test_a_script_that_imports_torch_has_a_gpu(started, folder):
    (folder / "asks.py").write_text(ASKS)
    done = started("--", "asks.py")
    assert done.returncode == 0, done.stderr


def test_the_users_sitecustomize_runs_too(emulated, tmp_path):
    users = tmp_path / "users"
    users.mkdir()
    (users / "sitecustomize.py").write_text("import builtins\nbuiltins.users_own = 1\n")
    code = f"import builtins, sys; assert builtins.users_own == 1; {WAITS}"
    done = emulated("--", "python", "-c", code, PYTHONPATH=str(users))
    assert done.returncode == 0, done.stdout


def test_pytest_has_it_as_a_plugin(folder):
    (folder / "test_asks.py").write_text("import torch\n\ndef test_gpu():\n    assert torch.cuda.is_available()\n")
    asked = "-p", "flash_attest.emulated", "-p", "no:cacheprovider", "test_asks.py"
    done = runs.python("-m", "pytest", *asked, folder=folder)
    assert "1 passed" in done.stdout and "without a GPU, one is emulated" in done.stdout, done.stdout + done.stderr


def test_pytest_does_not_warn_where_the_package_is_installed(started, folder, tmp_path):
    installed = tmp_path / "site" / "flash_attest-0.1.0.dist-info"  # the modules are the checkout's
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: flash-attest\nVersion: 0.1.0\n")
    (installed / "entry_points.txt").write_text("[pytest11]\nflash-attest = flash_attest.pytest_plugin\n")
    (installed / "RECORD").write_text("flash_attest/__init__.py,,\nflash_attest/pytest_plugin.py,,\n")
    (folder / "test_asks.py").write_text("import torch\n\ndef test_gpu():\n    assert torch.cuda.is_available()\n")
    command = ("--", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error::pytest.PytestWarning", "test_asks.py")
    done = started(*command, "-n", "1", PYTHONPATH=str(installed.parent))
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_wrong_command_line_is_refused(capsys):
    for arguments in ([], ["--"], ["--tra", "--", "x.py"], ["--trace"], ["--limit", "0", "--", "x.py"]):
        with pytest.raises(SystemExit) as end:
            emulate.run(arguments)
        assert end.value.code == 2
    written = capsys.readouterr().err
    assert "there is no command, as in flash-attest emulate -- pytest tests/" in written
    assert "--limit 0: should be more than 0" in written and "unrecognized arguments: --tra" in written


def test_help_needs_no_torch():
    code = (
        "import sys\nfrom flash_attest.command import emulate\n"
        "try:\n    emulate.run(['--help'])\nexcept SystemExit:\n    assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stdout.startswith("usage: flash-attest emulate [OPTION...] -- COMMAND"), (
        done.stderr
    )


def test_the_folder_of_sitecustomize_holds_nothing_else():
    names = [path.name for path in Path(emulate.AT_START).iterdir() if path.name != "__pycache__"]
    assert names == ["sitecustomize.py"]
