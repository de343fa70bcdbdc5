"""A file that cannot be loaded, judged alone: whatever the run selects, it says what is wrong with
the file, its report is whole, and it is not green.
"""

import json
from types import SimpleNamespace

import pytest

from flash_attest.runner.plugin import hookspecs
from flash_attest.runner.plugin.chosen import Chosen
from flash_attest.runner.plugin.unjudged import CONTRACT, impl_in, names_laws, with_contract
from tests.places import PLUGINS
from tests.runs import attest, attest_each, check

LAW = "query_sees_exactly_its_prefix"
CAUSAL = f"properties/test_causal.py::test_{LAW}"
HEAD = "import torch\nfrom flash_attest import Implementation, Supports\n"
ENDS = "importing it ends the process: "
# cause: (source of the file, its reason after the path)
CAUSES = {
    "raises": (f"{HEAD}x = 1 / 0\n", ":3: importing it raises ZeroDivisionError: division by zero"),
    "exits": ("import sys\n\nsys.exit(3)\n", ":3: importing it raises SystemExit: 3"),
    "ends": ("import os\nos._exit(3)\n", f": {ENDS}exit status 3"),
    "aborts": ("import os\nos.abort()\n", f":2: {ENDS}signal 6 (abort)"),
    "lacks_a_module": ("import nothing_of_this_name\n", ":1: importing it raises ModuleNotFoundError: No module named"),
    "has_no_syntax": ("x = 1\ndef f(:\n", ":2: importing it raises SyntaxError: invalid syntax"),
    "is_binary": (b"\xff\xfe\n", ":1: importing it raises SyntaxError: (unicode error) 'utf-8' codec"),
    "has_a_null_byte": (b"IMPL = 1\n\x00", ": importing it raises SyntaxError: source code string cannot contain null"),
    "defines_nothing": (HEAD, ": IMPL or IMPLS should be an Implementation, or a list of them"),
    "is_empty": ("", ": IMPL or IMPLS should be an Implementation, or a list of them"),
    "defines_a_function": (f"{HEAD}def IMPL(q): ...\n", ": IMPL or IMPLS should be an Implementation, or a list of them; "
                           "it is a function: call it"),
    "has_an_unknown_field": (f"{HEAD}IMPL = Implementation(name='a', forwrd=None)\n", ":3: importing it raises TypeError: "),
    "is_invalid": (f"{HEAD}IMPL = Implementation(name='Bad', forward=print)\n",
                   ": the Implementation is invalid: name='Bad': should match [a-z0-9_]+"),
}  # fmt: skip
FEW = ("ends", "has_no_syntax", "defines_nothing")  # alone in every run of these tests; the others are thorough
# what the run selects: pytest's arguments
SELECTIONS = {
    "all": (),
    "a chapter": ("properties/test_causal.py",),
    "a test": (f"{CAUSAL}[mine]",),
    "a keyword": ("-k", LAW),
    "a case": ("--case", "seqlen_q=3"),
    "no isolation": ("--no-isolation",),
    "untrusted": ("--untrusted",),
    "untrusted, a test": ("--untrusted", f"{CAUSAL}[mine]"),
    "the last shard": ("--shard", "3/3"),
    "a name": ("--impl", "mine"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that cannot be loaded, by cause."""
    folder = tmp_path_factory.mktemp("not_loaded")
    for name, (source, _) in CAUSES.items():
        (folder / f"{name}.py").write_bytes(source if isinstance(source, bytes) else source.encode())
    return {name: folder / f"{name}.py" for name in CAUSES}


# These repeat what other selections show.
MORE_SELECTIONS = ("a chapter", "a keyword", "no isolation", "untrusted, a test")


@pytest.fixture(scope="module")
def selected(files, tmp_path_factory, pytestconfig):
    """A run of each selection, on one file that cannot be loaded, alone."""
    raises = f"--impl-from={files['raises']}"
    left_out = () if pytestconfig.getoption("--thorough") else MORE_SELECTIONS
    runs = {name: ("-n", "0", *more, raises) for name, more in SELECTIONS.items() if name not in left_out}
    return attest_each(runs, tmp_path_factory.mktemp("selections"))


@pytest.fixture(scope="module")
def caused(files, tmp_path_factory, pytestconfig):
    """A run of one chapter on each file, alone."""
    files = files if pytestconfig.getoption("--thorough") else {name: files[name] for name in FEW}
    runs = {name: ("-n", "0", "properties/test_causal.py", f"--impl-from={file}") for name, file in files.items()}
    return attest_each(runs, tmp_path_factory.mktemp("causes"))


def is_told(run, file, reason):
    """Assert that a run says everything about a file that cannot be loaded, and nothing else."""
    assert run.returncode == 1, run.stdout
    assert run.stdout.rstrip().splitlines()[-1] == "not green: 1 file cannot be loaded"
    assert f"{file.stem} cannot be loaded: {file}{reason}" in run.stdout, run.stdout
    assert not [word for word in ("INTERNALERROR", "Traceback", "KeyError", "nothing is left") if word in run.stdout]
    report = json.loads((run.report / "results.json").read_text())
    (entry,), environment = report["results"], report["environment"]
    assert (entry["law"], entry["verdict"], entry["why"]) == ("test_contract_is_kept", "fail", "not loaded")
    assert entry["reason"].startswith(f"{file}{reason}")
    assert environment["complete"] and environment["state"] == "complete" and not environment["green"]
    assert "1 file cannot be loaded" in (run.report / "report.md").read_text()
    assert "1 file cannot be loaded" in (run.report / "index.html").read_text()


@pytest.mark.parametrize(
    "selection",
    [pytest.param(name, marks=pytest.mark.thorough if name in MORE_SELECTIONS else ()) for name in SELECTIONS],
)
def test_whatever_is_selected_the_file_is_named(selected, selection, files):
    is_told(selected[selection], files["raises"], CAUSES["raises"][1])


@pytest.mark.parametrize(
    "cause", [pytest.param(name, marks=() if name in FEW else pytest.mark.thorough) for name in CAUSES]
)
def test_each_cause_is_named_with_its_line(caused, cause, files):
    is_told(caused[cause], files[cause], CAUSES[cause][1])


@pytest.mark.thorough
@pytest.mark.parametrize("cause", ("raises", "ends"))
def test_workers_say_the_same(cause, files, tmp_path):
    arguments = ("properties/test_causal.py", f"--impl-from={files[cause]}")
    is_told(attest("-n", "2", *arguments, report=tmp_path / "report"), files[cause], CAUSES[cause][1])
    again = attest("-n", "2", "--resume", *arguments, report=tmp_path / "report")
    is_told(again, files[cause], CAUSES[cause][1])


def test_beside_a_right_one_it_is_not_green_either(files, tmp_path):
    one, law = f"--impl-from={PLUGINS / 'good.py'}", ("-n", "0", "-k", "out_matches_the_definition")
    run = attest(*law, one, f"--impl-from={files['raises']}", report=tmp_path / "report")
    assert run.returncode == 1
    assert run.stdout.rstrip().endswith("\nnot green: 1 file cannot be loaded; 1 law holds"), run.stdout


def test_a_hook_that_raises_is_named(tmp_path):
    chosen = ("-p", "tests.plugins.hook_raises", "--impl", "mine", "properties/test_causal.py")
    run = attest("-n", "0", *chosen, report=tmp_path / "report")
    is_told(run, PLUGINS / "hook_raises.py", ":5: pytest_attention_impls raises RuntimeError: what went wrong")


def test_a_hook_that_raises_costs_no_other_its_implementations():
    class Unprintable(Exception):
        def __str__(self):
            raise self

    def raises(config):
        raise Unprintable

    manager = pytest.PytestPluginManager()
    hookspecs.add_to(manager)
    for hook in (lambda config: ["first"], raises, lambda: None, lambda config: ["last"]):
        manager.register(SimpleNamespace(pytest_attention_impls=hook))
    config = SimpleNamespace(hook=manager.hook)
    last, unloadable, first = Chosen(config, SimpleNamespace(worker=None))._of_hooks()
    assert (first, last) == (["first"], ["last"])
    assert unloadable.problem.endswith("raises Unprintable: (no message: its __str__ raises)")


def test_the_command_names_the_file_whatever_law_is_asked_for(files):
    folder = files["raises"].parent
    run = check("check", "raises.py", "--law", LAW, "-n", "0", "--device", "cpu", folder=folder)
    assert run.returncode == 1 and "raises cannot be loaded: raises.py:3: importing it raises" in run.stdout, run.stdout


@pytest.mark.parametrize(
    ("argument", "name"),
    [("a.py::test_law[mine]", "mine"), ("a.py::test_law", None), ("a.py", None), ("folder[1]/a.py", None)],
)
def test_the_implementation_of_a_test_is_read_off_its_id(argument, name):
    assert impl_in(argument) == name


def test_laws_are_told_from_other_tests():
    assert names_laws(["properties"]) and names_laws([f"{CONTRACT}::test_contract_is_kept[mine]"])
    assert not names_laws(["tests/oracle", "tests/test_rooms.py::test_a"])


def test_arguments_are_left_alone_if_all_can_be_judged():
    assert with_contract(["properties", "a.py::test_law[mine]"], []) == ["properties", "a.py::test_law[mine]"]
    assert CONTRACT.endswith("properties/test_contract.py")
