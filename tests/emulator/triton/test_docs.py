"""docs/use/tracing-triton.md is correct: its example runs and prints the quoted text, and is
correct with the fix.
"""

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("triton")

from tests.places import ROOT

TEXT = (ROOT / "docs" / "use" / "tracing-triton.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, flags=re.M | re.S)  # (language, content)
EXAMPLE, PRINTED, FIX = (body for _, body in BLOCKS[:3])


def printed(folder, text):
    (folder / "normalize.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "normalize.py"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def test_the_example_prints_what_the_text_says(tmp_path):
    assert printed(tmp_path, EXAMPLE) == PRINTED


def test_the_fixed_example_has_no_race_and_is_right(tmp_path):
    before, after = ("".join(line[1:] for line in FIX.splitlines(True) if line[0] in signs) for signs in (" -", " +"))
    assert EXAMPLE.count(before) == 1
    (line,) = printed(tmp_path, EXAMPLE.replace(before, after)).splitlines()
    assert float(line.removeprefix("wrong by ")) < 1e-7
