"""Runs Python in a new process, and reads the results.json that a run of pytest writes."""

import json
import os
import subprocess
import sys

from tests.places import ROOT


def python(*arguments, **environment):
    """Run Python in the root of the repository. TRITON_INTERPRET is unset unless it is given."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "HYPOTHESIS", "TRITON_INTERPRET"))
    }
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env=inherited | {"COLUMNS": "160", "OMP_NUM_THREADS": "1"} | environment,
    )  # fmt: skip


def results(report):
    """Return {(law, impl): its entry in results.json}."""
    entries = json.loads((report / "results.json").read_text())["results"]
    return {(entry["law"], entry["impl"]): entry for entry in entries}
