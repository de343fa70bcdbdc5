"""An Absent can come from every source, is selected by its name, and is refused with its reason."""

import pytest

from flash_attest.impls import Absent, torch_math
from flash_attest.impls.contract.entry import Entry
from flash_attest.impls.contract.loading import from_file, from_hook
from flash_attest.impls.contract.registry import select
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import REFUSED
from flash_attest.runner.judge import Judge

GONE = Absent("gone", "its compiler is not installed")


def test_an_absent_comes_through_a_file(tmp_path):
    file = tmp_path / "gone.py"
    file.write_text('from flash_attest.impls import Absent\nIMPL = Absent("gone", "its compiler is not installed")\n')
    (entry,) = from_file(str(file))
    assert entry.impl == GONE and entry.name == "gone"


def test_an_absent_comes_through_the_hook():
    assert [entry.impl for entry in from_hook([[GONE], GONE])] == [GONE, GONE]


def test_an_absent_is_selected_by_its_name():
    entries = [Entry(GONE, "gone.py"), Entry(torch_math.IMPL, "torch_math.py")]
    assert select(entries, "gone") == entries[:1]


def test_an_absent_is_refused_and_not_run(tmp_path):
    result = Judge(Plan(device="cpu"), [Entry(GONE, "gone.py")], tmp_path, "main").contract(GONE)
    assert (result.verdict, result.reason, result.message) == (REFUSED, GONE.reason, "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", ""),
        ("IMPLS = []", "; the list is empty"),
        ("IMPLS = [1, 2]", "; the list holds int"),
        ("def IMPL(): ...", "; it is a function: call it"),
        ("IMPL = {}", "; it is a dict"),
    ],
)
def test_what_is_there_in_place_of_an_implementation_is_named(tmp_path, text, words):
    file = tmp_path / "mine.py"
    file.write_text(text)
    (entry,) = from_file(str(file))
    assert entry.impl.problem == f"{file}: IMPL or IMPLS should be an Implementation, or a list of them{words}"
