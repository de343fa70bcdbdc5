"""tests/prose.py finds the mistakes that it is for, and reports nothing in the corrected version of
each text.
"""

import re
import subprocess
import sys
import textwrap

import pytest

from tests import prose
from tests.places import ROOT


def mistakes(source: str) -> list[str]:
    """Return the kinds of mistakes in the docstrings of Python source."""
    return [mistake.partition(":")[0] for _, mistake in prose.docstrings(source)]


def function(docstring: str, name: str = "f", decorator: str = "") -> str:
    """Return the source of a function with this docstring."""
    return f'{decorator}\ndef {name}():\n    """{docstring}"""\n'


CLAUSE, NO_VERB = "a clause without its sentence", "a function's docstring without a verb"


@pytest.mark.parametrize(
    ("wrong", "mistake", "right"),
    [
        ("Where the kernel is compiled.", CLAUSE, "Where no GPU is visible, return the emulator."),
        ("Unless it has made all of its runs.", CLAUSE, "Unless it is empty, the file is read."),
        ("As os.waitpid gives it.", CLAUSE, "Return the status as os.waitpid gives it."),
        ("What a call returns, or is None.", CLAUSE, "Return what a call returns, or None."),
        ("Whether x is a tensor: it has a shape.", CLAUSE, "Return whether x is a tensor."),
        ("In a process: it is restarted.", CLAUSE, "In this block, nothing is collected."),
        ("For the terminal.", CLAUSE, "Format a table for the terminal."),
        ("The error of dq.", NO_VERB, "The error of dq is bounded."),
        ("The rows that are empty.", NO_VERB, "Return the rows that are empty."),
        ("The caller, which ends the process.", NO_VERB, "The caller ends the process."),
        ("Names, separated by commas.", NO_VERB, "Names the files."),
        ("Copy of the inputs.", NO_VERB, "Copy the inputs."),
        ("Raised for a wrong shape.", NO_VERB, "Raises ValueError for a wrong shape."),
        ("A tensor (b, h): its sum is 1.", NO_VERB, "q (b, h) -> a tensor whose sum is 1."),
        ("Processes of the group.", NO_VERB, "The processes end with it."),
        ("The bias list.", NO_VERB, "The biases list the rows."),
        ("-> the sum of x.", NO_VERB, "-> (sum of x, its rows)"),
        ("-> whether x is empty.", CLAUSE, "Return whether x is empty."),
        ("Tries of it.", NO_VERB, "Tries it."),
        ("Softmax of x.", NO_VERB, "softmax(x) y"),
        ("Also where it fails.", NO_VERB, "Also return where it fails."),
        ("Milliseconds, of this CPU.", NO_VERB, "S (i, j), P = exp(S - m)"),
    ],
)
def test_first_sentence_of_a_function(wrong, mistake, right):
    assert mistakes(function(wrong)) == [mistake]
    assert mistakes(function(right)) == []


@pytest.mark.parametrize(
    "source",
    [
        '"""{}"""',
        'class A:\n    """{}"""',
        function("{}", "test_something"),
        function("{}", decorator="@pytest.fixture"),
        function("{}", decorator="@functools.cached_property"),
        function("{}", decorator="@contextlib.contextmanager"),
    ],
)
def test_noun_phrases_say_what_a_thing_is(source):
    assert mistakes(source.format("The device where the kernel runs.")) == []
    assert mistakes(source.format("Where the kernel runs.")) == [CLAUSE]


@pytest.mark.parametrize("docstring", ["Whether it is empty.", "How many rows are empty."])
def test_whether_and_how_are_for_properties(docstring):
    assert mistakes(function(docstring, decorator="@property")) == []
    assert mistakes(function(docstring, decorator="@pytest.fixture")) == [CLAUSE]


def test_a_question_is_a_sentence():
    assert mistakes('"""How fast is it?  Run x"""') == []
    assert mistakes('"""How fast it is.  Run x?"""') == [CLAUSE]


@pytest.mark.parametrize(
    "around",
    [
        "class A:{}",
        "def g():{}",
        "if x:\n    pass\nelse:{}",
        "try:\n    pass\nexcept OSError:{}",
        "try:\n    pass\nfinally:{}",
        "match x:\n    case 1:{}",
    ],
)
def test_functions_inside_of_statements_are_read(around):
    source = around.format(textwrap.indent(function("For the terminal."), 8 * " "))
    assert mistakes(source) == [CLAUSE]


def phrase_of(pattern: str) -> str:
    """Return a text that a pattern of RETIRED matches."""
    text = re.sub(r"\(\?<[^)]*\)|\(\?=.*\)$", "", pattern).replace(r"[\w ]*", "").replace("?", "")
    return re.sub(r"\(([^)|]*)\|[^)]*\)", r"\1", text)


@pytest.mark.parametrize("pattern", prose.RETIRED)
@pytest.mark.parametrize(
    "form",
    ["# a {} b", "// a {} b", '"a {} b"', "a `x` {}, b"],
)
def test_retired_words(pattern, form):
    words = phrase_of(pattern)
    words += {"as well": " as it is as well", "all the same": ","}.get(words, "")
    for text in (form.format(words), form.format(words.capitalize())):
        assert [line for line, _ in prose.retired(f"\n{text}\n")] == [2]
    assert list(prose.retired(form.format("x".join(words.split(" ")) + "x"))) == []


@pytest.mark.parametrize(
    "lines",
    [
        "# a {}\n    # {} b",
        "// a {}\n// {} b",
        " * a {}\n * {} b",
        'f"a {} "\n    f"{} b"',
        '"a {} "\n    rf"{} b"',
        "a {}\n{} b",
    ],
)
def test_a_phrase_may_go_over_the_end_of_a_line(lines):
    assert [line for line, _ in prose.retired(lines.format("so", "many"))] == [1]
    assert list(prose.retired(lines.format("so", "few"))) == []


def test_code_in_markdown_is_no_prose():
    text = "```\n{0} want of x\n```\nwords `{0} want of` words\n{0} want of x\n"
    assert [line for line, _ in prose.retired(text.format("for"), markdown=True)] == [5]
    assert list(prose.retired(text.format("I"), markdown=True)) == []


def test_right_twins_of_retired_words():
    same = "they are all the same, so that of x is y; as well as z. What is not there is an error."
    assert list(prose.retired(same)) == []


def test_command(tmp_path):
    def run() -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, ROOT / "tests" / "prose.py"], cwd=tmp_path, capture_output=True, text=True
        )

    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "a.py").write_text(function("For the terminal."))
    (tmp_path / "broken.py").write_text("def (:")
    done = run()
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"a.py:3: {CLAUSE}: For the terminal.",
        "prose of 2 files: 1 mistakes",
    ]
    (tmp_path / "a.py").write_text(function("Format x for the terminal."))
    done = run()
    assert (done.returncode, done.stdout) == (0, "prose of 2 files: 0 mistakes\n")
