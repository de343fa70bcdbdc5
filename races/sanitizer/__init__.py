"""Race detection by compute-sanitizer: runs a program under it, and turns reports into findings.

tools.py         the tools, the path and the command line of compute-sanitizer
kernels.py       which kernels of a call are watched: all but PyTorch's own
watch.py         runs the tools in parallel, and ends them at a limit
parse.py         reads the logs of the tools
copied.py        leaves out what racecheck reports about copies of a value in Triton kernels
machine_code.py  says which kernels use the asynchronous proxy
"""

from flash_attest.races.sanitizer.copied import without_copies
from flash_attest.races.sanitizer.kernels import own_kernels
from flash_attest.races.sanitizer.parse import Report, parse
from flash_attest.races.sanitizer.tools import NOT_FOUND, Tool, find
from flash_attest.races.sanitizer.watch import LOGS, Watched, watch

__all__ = ["LOGS", "NOT_FOUND", "Report", "Tool", "Watched", "find", "own_kernels", "parse", "watch", "without_copies"]
