"""In any locale, and whatever an implementation prints or says, the terminal and all files stay
valid and readable, and no escape sequence reaches them.
"""

import json
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tests.places import PLUGINS, ROOT
from tests.runs import environment

C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LOCALES = {
    "C": C,
    "POSIX": C | {"LC_ALL": "POSIX"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin_1": {"PYTHONIOENCODING": "latin-1"},
    "utf_8": {},
}
# Control characters, lone surrogates, and marks that change the direction of the text around them.
HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each == "C" else pytest.mark.thorough) for each in LOCALES]
)
def test_a_run_is_readable(name, tmp_path):
    report, junit = tmp_path / "report", tmp_path / "junit.xml"
    variables = {each: value for each, value in environment().items() if not each.startswith(("LC_", "LANG", "PYTHON"))}
    command = [sys.executable, "-m", "pytest", "-n", "0", f"--impl-from={PLUGINS / 'says_anything.py'}"]
    command += ["--hypothesis-profile", "smoke", "-k", "contract_is_kept or out_matches", "-v"]
    command += [f"--report={report}", f"--junit-xml={junit}"]
    run = subprocess.run(
        command, cwd=ROOT, env=variables | LOCALES[name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    printed = run.stdout.decode("latin-1" if name == "latin_1" else "utf-8")
    assert run.returncode == 1, printed[-3000:]
    assert "Traceback" not in printed and "INTERNALERROR" not in printed and "cannot be made" not in printed
    assert not HOSTILE.findall(printed)
    last = printed.rstrip().splitlines()[-1]
    assert last.startswith("not green: ")
    # The message is there, with its letters where the encoding has them.
    letters = {"utf_8": "Größe 日本 עברית", "latin_1": r"Größe \u65e5\u672c"}.get(name, r"Gr\xf6\xdfe \u65e5\u672c")
    assert f"forward raises ValueError: {letters}" in printed
    for file in ("results.json", "index.html", "report.md"):
        text = (report / file).read_text(encoding="utf-8")
        assert not HOSTILE.findall(text), file
        assert file == "results.json" or "Größe 日本" in text
    results = json.loads((report / "results.json").read_text(encoding="utf-8"))["results"]
    (reason,) = {each["reason"] for each in results if each["verdict"] == "fail" and each["chapter"] != "test_contract"}
    assert reason.rstrip() == (
        "forward raises ValueError: Größe 日本 עברית \\x1b[2J\\x1b]0;title\\x07 \\u202e \\ud800 \\x00"
    )
    tree = ElementTree.parse(junit)
    assert tree.find(".//testcase/failure") is not None
    assert not HOSTILE.findall("".join(tree.getroot().itertext()))


@pytest.mark.thorough
def test_what_a_crash_has_printed_is_neutral(tmp_path):
    report = tmp_path / "report"
    command = [sys.executable, "-m", "flash_attest", "check", str(PLUGINS / "says_anything.py:CRASHES"), "-n", "0"]
    command += ["--law", "out_matches_the_definition", "--profile", "smoke", "--report", str(report)]
    run = subprocess.run(command, cwd=ROOT, env={**os.environ, **C}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    printed = run.stdout.decode()
    assert run.returncode == 1 and "Traceback" not in printed, printed[-3000:]
    (result,) = json.loads((report / "results.json").read_text())["results"]
    assert "it printed: Größe 日本 עברית \\x1b[2J\\x1b]0;title\\x07 \\u202e" in result["message"]
    assert not HOSTILE.findall(printed)
