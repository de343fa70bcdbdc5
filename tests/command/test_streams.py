"""A reader of the output that leaves, and closed standard streams, change no verdict."""

import json
import subprocess
import sys

import pytest

from tests.places import PLUGINS, ROOT
from tests.runs import environment, python

CHECK = ("check", PLUGINS / "good.py", "--device", "cpu", "-n", "0")
LAW = ("--law", "out_matches_the_definition", "--profile", "smoke", "--report")


LEAVES = "import os; reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)\n"
COMMAND = "import sys; from flash_attest.command import main; sys.exit(main())"


@pytest.mark.parametrize("closed", (False, True), ids=("a reader that leaves", "closed streams"))
def test_the_verdict_is_that_of_any_run(closed, tmp_path):
    if closed:  # Python looks when it starts
        command = [
            "sh",
            "-c",
            'exec <&- >&-; exec "$@"',
            "-",
            sys.executable,
            "-m",
            "flash_attest",
            *CHECK,
            *LAW,
            tmp_path,
        ]
        ended = subprocess.run([*map(str, command)], cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)
    else:
        ended = python("-c", LEAVES + COMMAND, *CHECK, *LAW, tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["environment"]["green"] and record["environment"]["complete"]
