"""Leaves out what racecheck reports where threads of a Triton kernel store copies of a value.

Triton may give a value to several threads, and each of them stores it. racecheck reports some of
these pairs of writes, and does not say which values were written (docs/why/races.md#sanitizer). So
writes of different values on one line of a Triton kernel are left out, too. The trace compares
values (docs/use/tracing-triton.md).
"""

from __future__ import annotations

import gc
from collections.abc import Collection

from flash_attest.emulator.observation import Action, Kind
from flash_attest.races.finding import Finding
from flash_attest.races.sanitizer.machine_code import OF_TRITON


def without_copies(findings: Collection[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Return the findings that count, and those about copies of a value."""
    if not any(map(_two_writes, findings)):
        return [*findings], []
    kernels = triton_kernels()
    copied = [each for each in findings if _two_writes(each) and each.first.site.function in kernels]
    return [each for each in findings if each not in copied], copied


def _two_writes(finding: Finding) -> bool:
    """Return whether a finding is about two writes on one line."""
    first, second = finding.first, finding.second
    if finding.kind is not Kind.RACE or first is None or second is None:
        return False
    return first.what is second.what is Action.WRITE and first.site == second.site and first.site.line > 0


def triton_kernels() -> set[str]:
    """Return the names of the kernels that Triton has compiled or loaded in this process."""
    compiled = (each for each in gc.get_objects() if type(each).__name__ == OF_TRITON)
    return {name for each in compiled if isinstance(name := getattr(each, "name", None), str)}
