"""A program in the place of compute-sanitizer: it runs what it is given, and writes logs that were decided before."""

import json
import sys
from pathlib import Path

from flash_attest.races.sanitizer.tools import PROGRAM, Tool

HEAD = "========= COMPUTE-SANITIZER\n"
CLEAN = {
    Tool.RACECHECK: f"{HEAD}========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
    Tool.MEMCHECK: f"{HEAD}========= ERROR SUMMARY: 0 errors\n",
    Tool.SYNCCHECK: f"{HEAD}========= ERROR SUMMARY: 0 errors\n",
}
SOURCE = """#!{python}
import json, pathlib, subprocess, sys
logs = json.loads({logs!r})
value = lambda option: sys.argv[sys.argv.index(option) + 1]
target = sys.argv[sys.argv.index("--log-file") + 2 :]
status = subprocess.run(target).returncode if {runs} else 0
log = logs[value("--tool")]
if log:
    pathlib.Path(value("--log-file")).write_text(log)
sys.exit(status)
"""


def fake(folder: Path, runs: bool = True, **logs: str) -> str:
    """Its path. logs: what a tool writes, by name; "" for nothing; nothing is found by the others.

    runs: whether it runs what it is given, too.
    """
    written = {tool.value: logs.get(tool.value, CLEAN[tool]) for tool in Tool}
    path = folder / PROGRAM
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(SOURCE.format(python=sys.executable, logs=json.dumps(written), runs=runs))
    path.chmod(0o755)
    return str(path)
