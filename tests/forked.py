"""Ends a fork as Python ends a process, except that it leaves its modules to the system.

Python would free all modules, object by object, which copies each page that the fork shares with
its parent: 0.3 s.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def end(status: int) -> NoReturn:
    """Wait for threads, call exit handlers, write what was printed, and end with this status."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
