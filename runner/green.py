"""Decides whether a run without failures is green."""

from __future__ import annotations

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN

# Reasons that name something this machine lacks. A run stays green despite such unknown verdicts.
EXCUSED = {why.value for why in (Reason.LAW_OF_OTHER_DEVICE, Reason.NO_SPARSE_MEMORY, Reason.NO_SANITIZER)}


def not_green(results: list[dict], *, asked_for: bool, replayed: bool) -> str:
    """Return why a run without failures is not green, or "" if it is green.

    Laws that do not apply on this device or machine do not count. Implementations of another device
    count only if they were asked for by name. A replay is green only if a law judged its case.
    """
    excused = EXCUSED if asked_for else EXCUSED | {Reason.OTHER_DEVICE.value}
    if undecided := sum(r["verdict"] == UNKNOWN and r["why"] not in excused for r in results):
        return f"{undecided} could not be decided"
    laws = [result for result in results if result["chapter"] != "test_contract"]
    if replayed and laws and not {PASS, FAIL} & {result["verdict"] for result in laws}:
        return f"no law took the case: {laws[0]['reason']}"
    return ""
