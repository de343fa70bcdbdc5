"""The surroundings of a run: missing packages, other users, folders and Pythons; replay in a
shell.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flash_attest import packages
from flash_attest.properties.judging.judgement import replay_of
from flash_attest.properties.judging.origin import OURS, OwnRun
from tests.places import PLUGINS, ROOT
from tests.runs import attest, environment, python, results

NOBODY = "65534"
HIDES = """
import importlib.machinery, sys
hidden, find_spec = sys.argv[1], importlib.machinery.PathFinder.find_spec
for name in [name for name in sys.modules if name.partition(".")[0] == hidden]:  # .pth files import some
    del sys.modules[name]

class Hides:
    def __call__(self, name, *rest, **more):
        return None if name.partition(".")[0] == hidden else find_spec(name, *rest, **more)

importlib.machinery.PathFinder.find_spec = Hides()
import pytest
sys.exit(pytest.main(["--impl", "torch_math"]))
"""


def run(*command: object, cwd: Path = ROOT, **more) -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=900, **more)


# --- packages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["torch", "hypothesis", "rich", "filelock", "jinja2"])
def test_a_missing_package_is_one_line_that_says_what_to_do(name):
    ended = run(sys.executable, "-c", HIDES, name, env=environment())
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert ended.stdout + ended.stderr == f"flash-attest needs {name}: pip install -r requirements.txt\n"


def test_what_is_looked_for_is_in_requirements():
    lines = {line.split(";")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()}
    assert {*packages.NEEDED.values()} <= {line.split("=")[0].split(">")[0].split("<")[0] for line in lines}


# --- the shell ------------------------------------------------------------------------------------


def test_a_replay_line_is_quoted():
    test = "properties/test_forward.py::test_out[a]"
    assert replay_of(OURS, test) == f"pytest '{test}'"
    assert replay_of(OwnRun("--impl-from=a.py"), test, "seqlen_q=1 headdim=2") == (
        f"pytest '{test}' --impl-from=a.py --case 'seqlen_q=1 headdim=2'"
    )


HOOKED = """
from tests.plugins import contract_breakers
def pytest_attention_impls(config):
    return contract_breakers.IMPLS[:1]
"""


@pytest.mark.parametrize(
    "how",
    [
        "one_key_short.py",
        pytest.param("contract_breakers.py:IMPLS", marks=pytest.mark.thorough),
        pytest.param("-p", marks=pytest.mark.thorough),
    ],
)
def test_a_replay_line_is_run_by_a_shell(tmp_path, monkeypatch, how):
    """The path has spaces, quotes, a semicolon and a variable."""
    odd = tmp_path / "my kernels; touch 'injected' \"$HOME\""
    odd.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "attest_hooked.py").write_text(HOOKED)
    sources = ("-p", "attest_hooked", "--impl", "wrong_shape")
    if how != "-p":
        file, colon, name = how.partition(":")
        shutil.copy(PLUGINS / file, odd / "a  b's.py")
        sources = (f"--impl-from={odd}/a  b's.py{colon}{name}",)
    attest(*sources, "-k", "sees_exactly or test_contract", report=tmp_path / "first")
    entry = next(e for e in results(tmp_path / "first").values() if e["verdict"] == "fail")
    assert entry["replay"] in entry["message"]
    before = set(tmp_path.iterdir())
    line = entry["replay"].replace("pytest", f"{shlex.quote(sys.executable)} -m pytest", 1)
    again = run("sh", "-c", f"{line} --device cpu --report={shlex.quote(str(tmp_path / 'again'))}", env=environment())
    assert again.returncode == 1, again.stdout + again.stderr
    (replayed,) = results(tmp_path / "again").values()
    assert (replayed["law"], replayed["verdict"], replayed["reason"]) == (entry["law"], "fail", entry["reason"])
    assert set(tmp_path.iterdir()) == before | {tmp_path / "again"} and not (ROOT / "injected").exists()


def test_an_existing_report_folder_may_follow_a_space(tmp_path):
    """A folder in the checkout may. Pytest would look for settings in a folder outside of the
    checkout, as --help says.
    """
    copy = checkout(tmp_path / "copy")
    (copy / "my report").mkdir()
    smoke = ("--impl", "torch_math", "-k", "winning", "--hypothesis-profile", "smoke", "--device", "cpu")
    judged = run(sys.executable, "-m", "pytest", *smoke, "--report", "my report", cwd=copy, env=environment())
    assert judged.returncode == 0, judged.stdout
    assert results(copy / "my report")["test_winning_key_is_copied[torch_math]"]["verdict"] == "pass"
    help_text = python("-m", "pytest", "--help").stdout
    assert "with = for a folder outside" in " ".join(help_text.split())


# --- folders and users ------------------------------------------------------------------------


def checkout(into: Path) -> Path:
    """Copy the files that a run needs."""
    into.mkdir(parents=True)
    rooms = [path.name for path in (ROOT / "flash_attest").iterdir() if path.is_symlink()]
    for room in ("flash_attest", *rooms):
        shutil.copytree(ROOT / room, into / room, symlinks=True)  # with bytecode, which takes seconds to compile
    for name in ("conftest.py", "tox.ini", "pyproject.toml"):
        shutil.copy(ROOT / name, into / name)
    return into


@pytest.fixture
def elsewhere():
    """(folder, copy): a folder with a read-only copy, a read-only home, and a folder open to
    all.
    """
    base = Path(tempfile.mkdtemp(prefix="flash attest "))
    base.chmod(0o755)
    copy = checkout(base / "a check-out; it's elsewhere")
    for path in [copy, *copy.rglob("*")]:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222 | 0o444)
    for name, mode in ("home", 0o555), ("reports", 0o777):
        (base / name).mkdir()
        (base / name).chmod(mode)
    yield base, copy
    for path in [copy, *copy.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(base)


def as_another_user() -> list[str]:
    """Return a prefix that runs a command as a user who owns nothing; [] unless this user is root.

    The other user may read everything, because Python itself may be in root's home.
    """
    if os.getuid() != 0:
        return []
    reads = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
    return ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", *reads]


@pytest.mark.thorough
@pytest.mark.parametrize("names", ["torch_math,cuda_fa1", "triton_fa2", "numba_fa1"])
def test_a_read_only_checkout_with_spaces_and_another_user(elsewhere, names):
    judge_elsewhere(*elsewhere, names)


def test_another_user_in_a_read_only_checkout(elsewhere):
    """The home is read-only, there is no TMPDIR, and no bytecode is written."""
    judge_elsewhere(*elsewhere, "python_tiled")


def judge_elsewhere(base: Path, copy: Path, names: str) -> None:
    variables = {
        name: value for name, value in environment().items() if name in ("PATH", "LANG", "COLUMNS", "LD_LIBRARY_PATH")
    }
    env = variables | {"HOME": str(base / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    smoke = ("--impl", names, "--hypothesis-profile", "smoke", "-k", "out_matches or contract", "--device", "cpu")
    command = (sys.executable, "-m", "pytest", *smoke)
    judged = run(*as_another_user(), *command, f"--report={base}/reports/a b", cwd=copy, env=env)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    entries = results(base / "reports" / "a b")
    assert {e["verdict"] for e in entries.values()} == {"pass"} and len(entries) == 2 * len(names.split(","))
    if os.getuid() == 0:  # the default folder lies in the checkout
        judged = run(*as_another_user(), *command, cwd=copy, env=env)
        assert judged.returncode == pytest.ExitCode.USAGE_ERROR
        says = "ERROR: --report attest-report: cannot be written to (Permission denied): name another one with --report=DIR"
        assert says in judged.stdout + judged.stderr
