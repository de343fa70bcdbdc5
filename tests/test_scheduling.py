"""Only the suite's own tests are spread by file; laws are spread by implementation."""

from types import SimpleNamespace

import pytest

from flash_attest.properties.machine.gpus import cores
from tests.places import ROOT
from tests.scheduling import pytest_xdist_auto_num_workers, pytest_xdist_make_scheduler, scope


def scheduler_for(*arguments, dist="worksteal"):
    option = SimpleNamespace(loadscopereorder=True)
    values = {"dist": dist, "tx": ["2*popen"], "maxschedchunk": None, "loadscopereorder": False}
    config = SimpleNamespace(args=list(arguments), getoption=values.get, getvalue=values.get, option=option)
    return pytest_xdist_make_scheduler(config, None)


@pytest.mark.parametrize(
    "arguments",
    [("properties",), ("properties/test_forward.py::test_out_matches_the_definition",), ("tests", "properties")],
)
def test_laws_are_not_spread_by_file(arguments, monkeypatch):
    """A run without paths, which judges, reads tests/conftest.py, too."""
    monkeypatch.chdir(ROOT)
    assert scheduler_for(*arguments) is None


def test_a_file_of_tests_stays_with_one_worker(monkeypatch):
    monkeypatch.chdir(ROOT)
    ours = scheduler_for("tests/runner/plugin/test_run.py::test_a[b]", str(ROOT / "tests"))
    assert ours._split_scope("tests/runner/plugin/test_run.py::test_a[b]") == "tests/runner/plugin/test_run.py"
    assert scope("tests/page/test_a.py::test_b") == scope("tests/page/test_c.py::test_d") == "tests/page/"
    assert scheduler_for("tests", dist="loadscope") is None


def test_tests_have_a_worker_more_than_cores_and_laws_do_not(monkeypatch):
    """Tests of what hangs or sleeps leave a core idle. A law seldom does."""
    monkeypatch.chdir(ROOT)
    assert pytest_xdist_auto_num_workers(SimpleNamespace(args=["tests"])) == cores() + 1
    assert pytest_xdist_auto_num_workers(SimpleNamespace(args=["properties"])) is None
