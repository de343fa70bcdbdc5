"""The examples work as copied: the repository of a kernel author, and the command that copies
examples.
"""

import importlib.util
import shutil

import pytest

from flash_attest import command
from flash_attest.arguments import WRONG
from flash_attest.command.examples import EXAMPLES
from tests.door.hers import pytest_in
from tests.places import ROOT

REPOSITORY = ROOT / "examples" / "own_repository"
WORKFLOW = (REPOSITORY / ".github" / "workflows" / "tests.yml").read_text()
# A law about the mask, a law that traces, and one of the author's own tests.
SOME = "contract or query_sees_exactly or no_race_is_traced or rounding_allows"
STRICT = ("j[None, :] <= i[:, None]", "j[None, :] < i[:, None]")

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")


@pytest.fixture
def repository(tmp_path, gxx):
    """A copy of the author's repository."""
    return shutil.copytree(REPOSITORY, tmp_path / "hers", ignore=shutil.ignore_patterns("__pycache__"))


@needs_triton
def test_a_mistake_in_her_kernel_fails_her_test_and_a_law(repository):
    """docs/use/first-verdict.md runs these tests without the mistake."""
    file = repository / "my_kernels" / "attention.py"
    assert file.read_text().count(STRICT[0]) == 1
    file.write_text(file.read_text().replace(*STRICT))
    run = pytest_in(repository, "-k", SOME)
    failed = [line.split(" ")[1] for line in run.stdout.splitlines() if line.startswith("FAILED ")]
    test = "tests/test_attention.py::test_attention_"
    assert f"{test}is_as_exact_as_rounding_allows[100-True]" in failed, run.stdout
    assert f"{test}obeys[query_sees_exactly_its_prefix]" in failed
    assert f"{test}is_as_exact_as_rounding_allows[100-False]" not in failed
    assert "E       AssertionError: out[b=0 i=0 h=0 d=0] is nan, should be " in run.stdout
    assert "def assert_attention_close" not in run.stdout  # the line of the test is shown instead


@needs_triton
def test_the_laws_need_no_setting_to_run_without_a_gpu(repository):
    run = pytest_in(repository, "-k", "contract or no_race_is_traced", "-o", "attest_emulate=false")
    assert run.returncode == 0 and "flash-attest: green: 2 laws hold\n" in run.stdout, run.stdout


def test_her_workflow_runs_pytest_and_names_no_host():
    assert "- run: pytest -n 2 --attest-report attest-report\n" in WORKFLOW
    assert "flash-attest[triton]" in WORKFLOW and "://" not in WORKFLOW


# --- flash-attest examples ------------------------------------------------------------------------


def test_every_example_is_there_and_listed(capsys):
    assert command.main(["examples"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(EXAMPLES)
    known = {file for _, files in EXAMPLES.values() for file in files}
    assert known == {path.name for path in (ROOT / "examples").iterdir()} - {"__pycache__"}


def test_examples_are_copied_and_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flash_forward.py").write_text("mine")
    assert command.main(["examples", "own_repository", "one_key_short"]) == 0
    assert capsys.readouterr().out == "own_repository/\none_key_short.py\n"
    copied = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"own_repository/pyproject.toml", "own_repository/.github/workflows/tests.yml", "one_key_short.py"} <= copied
    assert not [path for path in copied if "__pycache__" in path]
    for name, words in (
        ("flash_forward", "flash_forward.py is here already"),
        ("one_key_shor", "did you mean one_key_short?"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(["examples", name])
        assert ended.value.code == WRONG and words in capsys.readouterr().err
    assert (tmp_path / "flash_forward.py").read_text() == "mine" and not (tmp_path / "flash_forward.cu").exists()
