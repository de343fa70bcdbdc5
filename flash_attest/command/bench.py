"""flash-attest bench: measures how fast implementations are."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from flash_attest.bench.options import parsed

if TYPE_CHECKING:
    from rich.console import Console

NAME = "bench"
SUMMARY = "how fast implementations are, beside manual attention and PyTorch's kernels"


def run(arguments: list[str], console: Console | None = None) -> int:
    """Measure. Returns the exit status (bench/options.py)."""
    parser, options = parsed(arguments)
    import flash_attest.required  # noqa: F401
    from flash_attest.bench.command import bench

    # A time limit (SIGTERM) ends the command as Ctrl-C does, with a table of what was measured.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return bench(parser, options, ["flash-attest", NAME, *arguments], console)
    finally:
        signal.signal(signal.SIGTERM, before)
