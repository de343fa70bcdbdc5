"""The command as a whole: help without torch, unknown words, exit statuses."""

import argparse
import os
import subprocess
import sys

import pytest

from flash_attest import arguments, command
from flash_attest.arguments import Added, Joined, Parser
from flash_attest.command.check import parser_of_options
from flash_attest.did_you_mean import did_you_mean
from tests.places import ROOT

HELPS = [["--help"], *([name, "--help"] for name in command.COMMANDS), ["sweep", "--ray", "--help"]]
SLOW = ("torch", "pytest", "numpy", "hypothesis", "rich", "triton", "numba", "matplotlib")  # to import
LOADED = """
import sys
from flash_attest.command import main
status = None
try:
    status = main(sys.argv[1:])
except SystemExit as ended:
    status = ended.code or 0
print("status", status, *sys.modules, file=sys.stderr)
"""


def refused(run, *words, capsys) -> str:
    """Return the one line that is printed for a wrong command line."""
    with pytest.raises(SystemExit) as ended:
        run([*map(str, words)])
    assert ended.value.code == arguments.WRONG
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_help_imports_nothing_that_takes_long(words):
    """Help is then printed within a twentieth of a second.

    The test counts modules, because seconds depend on the machine.
    """
    run = subprocess.run([sys.executable, "-c", LOADED, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    _, status, *modules = run.stderr.split()
    assert status == "0" and "flash-attest" in run.stdout
    assert [name for name in SLOW if name in modules] == []


@pytest.mark.parametrize("name", command.COMMANDS)
def test_every_help_says_what_the_exit_statuses_mean(name, capsys):
    with pytest.raises(SystemExit):
        command.command(name).run(["--help"])
    assert "exit status" in capsys.readouterr().out.lower()


@pytest.mark.parametrize("name", command.COMMANDS)
def test_every_command_has_its_module(name):
    module = command.command(name)
    assert name == module.NAME and module.SUMMARY and callable(module.run)
    assert f"  {name} " in command.help_text()


def test_an_unknown_command_gets_a_suggestion(capsys):
    assert command.main(["chek"]) == arguments.WRONG
    assert "unknown command 'chek'; did you mean check? (commands: check, laws" in capsys.readouterr().err


def test_without_a_command_the_help_is_an_error(capsys):
    assert command.main([]) == arguments.WRONG
    assert "usage: flash-attest COMMAND" in capsys.readouterr().out


def test_version(capsys):
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("flash-attest 0.")


@pytest.mark.parametrize(
    ("name", "words", "meant"),
    [
        ("sweep", ["--minute", "0"], "--minutes"), ("bench", ["--head-dim", "64"], "--headdim"),
        ("power", ["--matirx"], "--matrix"), ("calibrate", ["--regime", "x"], "--regimes"),
        ("check", ["--laws=a"], "--law"),
        ("times", ["--slow", "3"], "--slowest"), ("laws", ["--jsn"], "--json"), ("doctor", ["--jsno"], "--json"),
    ],
)  # fmt: skip
def test_an_unknown_option_gets_a_suggestion_and_none_is_abbreviated(name, words, meant, capsys):
    line = refused(command.command(name).run, *words, capsys=capsys)
    assert line.startswith(f"flash-attest {name}: error: unrecognized arguments: ") and line.endswith(
        f"; did you mean {meant}?"
    )


def test_an_option_that_is_like_none_points_to_the_help(capsys):
    parser = Parser("prog", "What it does.")
    assert refused(parser.parse_args, "--xyzzy", capsys=capsys).endswith(": --xyzzy (prog --help lists the options)")


@pytest.mark.parametrize(
    "words",
    [
        ["check", "torch_math"], ["laws"], ["trace", __file__], ["sweep", "--runs", "1"], ["bench"], ["calibrate"],
        ["power"], ["merge", "a", "--into", "b"], ["compare", "a", "b"], ["times"],
    ],
)  # fmt: skip
def test_a_missing_package_is_one_line(words, tmp_path):
    hidden = "from flash_attest import packages\npackages.is_there = lambda module: module != 'mpmath'\n"
    run = subprocess.run(
        [sys.executable, "-c", hidden + LOADED, *words],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    line, modules = run.stderr.splitlines()
    assert line == "flash-attest needs mpmath: pip install -r requirements.txt"
    assert modules.split()[:2] == ["status", "4"] and "torch" not in modules.split()


def test_ctrl_c_is_no_traceback(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(command.command("times"), "run", interrupted)
    assert command.main(["times"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_ends_early_is_no_traceback():
    program = f"{sys.executable} -m flash_attest --help | true; echo ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", program], cwd=ROOT, capture_output=True, text=True, env=os.environ)
    assert run.stdout.strip() in ("0", "1") and run.stderr == ""


# --- suggestions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("triton_fa", "; did you mean triton_fa2?"),
        ("sees_exactly", "; did you mean query_sees_exactly_its_prefix?"),  # only one name contains it
        ("a", ""),
        ("something_else", ""),
        (["triton_fa", "torch_mth"], "; did you mean triton_fa2 and torch_math?"),
    ],
)
def test_suggestions(name, words):
    known = ["triton_fa2", "torch_math", "query_sees_exactly_its_prefix", "a_row", "a_key"]
    assert did_you_mean(name, known) == words


# --- the same option in every command -------------------------------------------------------------


WITH_OPTIONS = ("check", "sweep", "bench", "calibrate", "power", "trace", "emulate")


def options_of(name, monkeypatch) -> dict:
    """Return the options of a command: spelling -> action."""
    options = {}

    def stop(self, *_):
        options.update({spelling: action for action in self._actions for spelling in action.option_strings})
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Parser, "parse_args", stop)
        patched.setattr(Parser, "parse_known_args", stop)
        with pytest.raises(SystemExit):
            command.command(name).run([])
    return options


def test_an_option_has_the_same_form_in_every_command(monkeypatch):
    forms: dict[str, dict] = {}
    for name in WITH_OPTIONS:
        for option, action in options_of(name, monkeypatch).items():
            forms.setdefault(option, {})[name] = (action.metavar, action.choices)
    shared = (
        "--impl",
        "--impl-from",
        "--device",
        "--seed",
        "--report",
        "--profile",
        "--shard",
        "--repeats",
        "--workers",
    )
    assert all(len(forms[option]) > 1 for option in shared)
    assert {option: by for option, by in forms.items() if len(set(map(repr, by.values()))) > 1} == {}


@pytest.mark.parametrize("option", ["--impl", "--perturb"])
def test_names_in_several_uses_of_an_option_are_joined(option):
    """The last use alone would leave out the others without a word."""
    options = parser_of_options().parse_args([option, "a", f"{option}=b,c"])
    assert getattr(options, option[2:]) == "a,b,c"


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_every_option_with_a_list_keeps_all_of_its_uses(name, monkeypatch):
    lists = {
        s: a for s, a in options_of(name, monkeypatch).items() if a.metavar and ("," in a.metavar or a.nargs == "+")
    }
    keeps = Joined, Added, argparse._AppendAction
    assert [option for option, action in lists.items() if not isinstance(action, keeps)] == []
    assert lists or name in ("trace", "emulate")
