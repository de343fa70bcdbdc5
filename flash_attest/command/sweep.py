"""flash-attest sweep: hunts for races for hours; with --ray, on several machines."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING

from flash_attest.sweep.options import parsed, parsed_for_ray

if TYPE_CHECKING:
    from rich.console import Console

NAME = "sweep"
SUMMARY = "hunts races for hours, on cases and under perturbations drawn at random"
RAY = "--ray"


def run(arguments: list[str], console: Console | None = None) -> int:
    """Sweep. Returns the exit status (sweep/options.py)."""
    if RAY in arguments:
        parser, options, rest = parsed_for_ray([argument for argument in arguments if argument != RAY])
        import flash_attest.required
        from flash_attest.sweep import on_ray

        return on_ray.sweep(parser, options, rest)
    parser, options = parsed(arguments)
    import flash_attest.required  # noqa: F401
    from flash_attest.sweep.command import sweep

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit ends the sweep as Ctrl-C does
    try:
        return sweep(parser, options, shlex.join(["flash-attest", NAME, *arguments]), console)
    finally:
        signal.signal(signal.SIGTERM, before)
