"""When a run without failures is green."""

from __future__ import annotations

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, UNKNOWN

# What this machine lacks for a law: such a verdict of unknown leaves a run green.
EXCUSED = {why.value for why in (Reason.LAW_OF_OTHER_DEVICE, Reason.NO_SPARSE_MEMORY, Reason.NO_SANITIZER)}


def not_green(results: list[dict], *, asked_for: bool, replayed: bool) -> str:
    """Say why a run without failures is not green; "" if it is.

    Laws that do not apply on this device or machine do not count, nor do implementations of another device unless they were
    asked for by name. A replay is green only if a law took its case.
    """
    excused = EXCUSED if asked_for else EXCUSED | {Reason.OTHER_DEVICE.value}
    if undecided := sum(r["verdict"] == UNKNOWN and r["why"] not in excused for r in results):
        return f"{undecided} could not be decided"
    laws = [result for result in results if result["chapter"] != "test_contract"]
    if replayed and laws and not {PASS, FAIL} & {result["verdict"] for result in laws}:
        return f"no law took the case: {laws[0]['reason']}"
    return ""
