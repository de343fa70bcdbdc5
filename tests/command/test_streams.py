"""A reader of the output that leaves, and closed standard streams, change no verdict."""

import json
import subprocess
import sys

import pytest

from tests.places import PLUGINS, ROOT
from tests.runs import environment

CHECK = (sys.executable, "-m", "flash_attest", "check", PLUGINS / "good.py", "--device", "cpu", "-n", "0")
LAW = ("--law", "out_matches_the_definition", "--profile", "smoke", "--report")


@pytest.mark.parametrize("closed", ("", "exec <&- >&-; "), ids=("a reader that leaves", "closed streams"))
def test_the_verdict_is_that_of_any_run(closed, tmp_path):
    command = ["sh", "-c", f'{closed}exec "$@"', "-", *CHECK, *LAW, tmp_path]
    process = subprocess.Popen(
        [*map(str, command)], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    said = process.stderr.read()
    assert (process.wait(), said) == (0, b"")
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["environment"]["green"] and record["environment"]["complete"]
