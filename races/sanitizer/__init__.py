"""The sanitizer layer: runs a program under compute-sanitizer and turns its reports into findings.

tools.py     its tools, its path, its command line
kernels.py   which kernels of a call are watched: all but PyTorch's own
watch.py     the processes: started together, ended after a limit
parse.py     reads what the tools write
"""

from flash_attest.races.sanitizer.kernels import own_kernels
from flash_attest.races.sanitizer.parse import Report, parse
from flash_attest.races.sanitizer.tools import NOT_FOUND, Tool, find
from flash_attest.races.sanitizer.watch import LOGS, Watched, watch

__all__ = ["LOGS", "NOT_FOUND", "Report", "Tool", "Watched", "find", "own_kernels", "parse", "watch"]
