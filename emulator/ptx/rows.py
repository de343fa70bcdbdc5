"""The parts of the table of opcodes (instructions.py): its rows, and the plan that a row gives for
an opcode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from flash_attest.emulator.ptx.handlers import Handler
from flash_attest.emulator.ptx.syntax import Instruction


@dataclass(frozen=True)
class Row:
    """One line of the table; instructions.py explains how it is written."""

    spelling: str
    operands: str = ""
    # The function that reads the operands and emits code through an Encoder.
    by: Callable[[Any, Instruction, Plan], None] | None = None
    name: str = ""  # of the handler; {t} is what <t=...> matched
    also: tuple[Handler, ...] = ()  # other handlers that `by` emits
    note: str = ""


class Plan(NamedTuple):
    """Directions for encoding an opcode: the row, the handler, and the operands as (is a
    destination, type).
    """

    row: Row
    handler: Handler
    operands: tuple[tuple[bool, str], ...]
    words: dict[str, str | None]
