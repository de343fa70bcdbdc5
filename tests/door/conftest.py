"""The repository of a kernel author, with tests under @attention_laws."""

from pathlib import Path

import pytest

from tests.kernel_author import CONFTEST, KERNELS, LAWS

TESTS = (
    LAWS
    + """

@attention_laws(forward=attention, **FIELDS)
def test_right(law):
    law()


class TestWrong:
    @pytest.mark.parametrize("again", [False, True])
    @attention_laws(forward=scaled_twice, **FIELDS)
    def test_in_a_class(self, law, again):
        law()


@attention_laws(forward=crashes, **FIELDS)
def test_crash(law):
    law()


KNOWN = {"test_out_matches_the_definition": "scaled twice, #12"}


@attention_laws(forward=scaled_twice, name="known", known_failures=KNOWN, **FIELDS)
def test_known(law):
    law()


@attention_laws(forward=attention, name="on_gpu", devices={"cuda"}, **FIELDS)
def test_on_a_gpu(law):
    law()


def test_of_her_own(request):
    assert request.config.getoption("--device") == "hers"
"""
)
PROJECT = """
[tool.pytest.ini_options]
pythonpath = ["."]
attest_profile = "smoke"
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """The repository. Its conftest.py has options with the same names as ours."""
    folder = tmp_path_factory.mktemp("hers")
    (folder / "tests").mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "tests" / "test_attn.py").write_text(TESTS)
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder
