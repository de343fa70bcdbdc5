"""Presses Ctrl-C, for programs that tests run."""

import os
import signal
import subprocess


def press(after: float) -> None:
    """Let another process send this one SIGINT after some seconds, as a terminal would."""
    # The signal is ignored if a shell runs this in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    subprocess.Popen(["sh", "-c", f"sleep {after}; kill -INT {os.getpid()}"])
