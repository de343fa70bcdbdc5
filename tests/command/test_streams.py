"""A reader of the output that leaves, and closed standard streams, change no verdict."""

import json

import pytest

from tests.places import PLUGINS
from tests.runs import python

CHECK = ("check", PLUGINS / "good.py", "--device", "cpu", "-n", "0")
LAW = ("--law", "out_matches_the_definition", "--profile", "smoke", "--report")


LEAVES = "import os; reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)\n"
CLOSED = (
    "import os, sys; os.close(0); os.close(1); sys.stdin = sys.stdout = None\n"  # as Python finds them when it starts
)
COMMAND = "import sys; from flash_attest.command import main; sys.exit(main())"


@pytest.mark.parametrize("before", (LEAVES, CLOSED), ids=("a reader that leaves", "closed streams"))
def test_the_verdict_is_that_of_any_run(before, tmp_path):
    ended = python("-c", before + COMMAND, *CHECK, *LAW, tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["environment"]["green"] and record["environment"]["complete"]
