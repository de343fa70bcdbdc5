"""The strip at the top of the page of a run: the verdict, how far it came, and what it ran with."""

from __future__ import annotations

from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.runner.green import Asked, is_green, not_loaded, verdict_line
from flash_attest.runner.page.template import BAD, BUSY, GOOD, OPEN
from flash_attest.runner.page.words import UNLOADED

RUNNING = "running"
# What the page shows of the environment; an older or shorter run may lack some of it.
SHOWN = ("command", "device", "device_name", "seconds", "workers", "profile", "cases_per_law", "seed", "started", "state",
         "shard", "parts", "platform", "remarks")  # fmt: skip


def context(results: list[dict], environment: dict, counts: dict[str, int]) -> dict[str, object]:
    """Return what the strip needs. counts: verdict -> how many."""
    complete = environment.get("complete", True)
    progress = ""
    if not complete:
        state = environment.get("state", RUNNING)
        progress = f"{state}: {environment.get('decided', len(results))} of {environment.get('planned', 'all')} decided"
    verdict = environment.get("verdict") or verdict_line(
        results, Asked.of(environment),
        device=environment.get("device", ""), emulated=environment.get("emulated", ""),
        elsewhere=environment.get("elsewhere") or (),
    )  # fmt: skip
    return {
        "tone": _tone(verdict, environment, counts),
        "progress": progress,
        "verdict": verdict,
        "environment": {name: environment.get(name) for name in SHOWN},
        "can_resume": "options" in environment,  # decorated tests cannot
        "decided": len(results),
        "title": _title(environment, counts),
        "versions": {name: version for name, version in environment.get("versions", {}).items() if version},
    }


def _tone(verdict: str, environment: dict, counts: dict[str, int]) -> str:
    if counts.get(FAIL) or counts.get(UNLOADED):
        return BAD
    if not environment.get("complete", True):
        return BUSY if environment.get("state") == RUNNING else OPEN
    return GOOD if environment.get("green", is_green(verdict)) else OPEN


def _title(environment: dict, counts: dict[str, int]) -> str:
    """Return what the tab of a browser shows."""
    shard = environment.get("shard")
    part = f" (shard {shard['part']}/{shard['of']})" if shard else ""
    state = "" if environment.get("complete", True) else f"{environment.get('state', RUNNING)}, "
    files = f"{not_loaded(counts.get(UNLOADED, 0))}, " if counts.get(UNLOADED) else ""
    return f"flash-attest{part}: {state}{files}{counts.get(FAIL, 0)} fail, {counts.get(PASS, 0)} pass"
