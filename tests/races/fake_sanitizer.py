"""A stand-in for compute-sanitizer, which runs its target and writes logs that it was given."""

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
SOURCE = """#!{python} -IS
import json, sys
logs = json.loads({logs!r})
value = lambda option: sys.argv[sys.argv.index(option) + 1]
target = sys.argv[sys.argv.index("--log-file") + 2 :]
status = __import__("subprocess").run(target).returncode if {runs} else 0
kernels = [word.partition("=")[2] for word in sys.argv if word.startswith("kernel_substring=")]
log = logs.get(value("--tool") + ":" + ",".join(kernels), logs[value("--tool")])
if log:
    open(value("--log-file"), "w").write(log)
sys.exit(status)
"""


def fake(folder: Path, runs: bool = True, **logs: str) -> str:
    """Make the program. Returns its path.

    logs: the text that each tool writes, by name; "" for nothing. Other tools report nothing.
    "racecheck:forward" is what racecheck writes if it watches only this kernel. runs: whether it
    runs its target.
    """
    texts = {tool.value: logs.get(tool.value, CLEAN[tool]) for tool in Tool}
    texts |= {name: text for name, text in logs.items() if ":" in name}
    path = folder / PROGRAM
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(SOURCE.format(python=sys.executable, logs=json.dumps(texts), runs=runs))
    path.chmod(0o755)
    return str(path)
