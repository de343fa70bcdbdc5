"""Counts the verdicts of a run by group, and decides whether the run is green."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sized
from enum import Enum

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN

# Reasons that name something this machine lacks. A run stays green despite such unknown verdicts.
EXCUSED = {
    why.value for why in (Reason.LAW_OF_OTHER_DEVICE, Reason.NO_SPARSE_MEMORY, Reason.GPU_MEMORY, Reason.NO_SANITIZER)
}


OTHER = {"cpu": "a GPU", "cuda": "a CPU"}  # the device of a run -> the one that it does not judge on


class Group(Enum):
    """The groups in which verdicts are counted. Each value has the words for one law and for
    several.
    """

    FAILS = "fails", "fail"
    UNDECIDED = "undecided", "undecided"
    HOLDS = "holds", "hold"
    KNOWN = "fails as known", "fail as known"
    NOT_APPLYING = "does not apply", "do not apply"
    OTHER_DEVICE = "needs another device", "need another device"
    SPARSE_MEMORY = "needs sparse memory", "need sparse memory"
    GPU_MEMORY = "needs a larger GPU", "need a larger GPU"
    SANITIZER = "needs compute-sanitizer", "need compute-sanitizer"

    def words(self, n: int, device: str = "") -> str:
        """Return, for example, "3 hold". device: the device of the run; if given, the text names
        the device that is needed instead.
        """
        text = self.value[n != 1]
        other = OTHER.get(device)
        return f"{n} {text.replace('another device', other) if other else text}"


_GROUPS = {
    Reason.OTHER_DEVICE.value: Group.OTHER_DEVICE,
    Reason.LAW_OF_OTHER_DEVICE.value: Group.OTHER_DEVICE,
    Reason.NO_SPARSE_MEMORY.value: Group.SPARSE_MEMORY,
    Reason.GPU_MEMORY.value: Group.GPU_MEMORY,
    Reason.NO_SANITIZER.value: Group.SANITIZER,
}


def group_of(result: dict, *, asked_for: bool) -> Group:
    """Return the group of a result.

    asked_for: whether the implementations were named by the user. If so, one that needs another
    device counts as undecided and is not excused.
    """
    if result["verdict"] == UNKNOWN:
        excused = EXCUSED if asked_for else EXCUSED | {Reason.OTHER_DEVICE.value}
        return _GROUPS[result["why"]] if result["why"] in excused else Group.UNDECIDED
    if result["verdict"] == FAIL:
        return Group.KNOWN if result["known"] else Group.FAILS
    return {PASS: Group.HOLDS, REFUSED: Group.NOT_APPLYING}[result["verdict"]]


def counted(results: Iterable[dict], *, asked_for: bool, device: str = "") -> str:
    """Return the counts of results, for example "61 laws hold; 8 do not apply; 3 need a GPU"."""
    counts = Counter(group_of(result, asked_for=asked_for) for result in results)
    parts = [group.words(n, device) for group in Group if (n := counts[group])]
    if parts:
        number, _, words = parts[0].partition(" ")
        parts[0] = f"{number} {'law' if number == '1' else 'laws'} {words}"
    return "; ".join(parts)


def not_green(results: list[dict], *, asked_for: bool, replayed: bool, unjudged: int = 0, planned: int = 0) -> str:
    """Say why a run is not green, apart from laws that fail; "" if nothing else is wrong.

    Laws that do not apply on this device or machine do not count, nor do implementations of another
    device, unless they were asked for by name. A replay is green only if a law took its case.
    unjudged: how many of the planned laws have no verdict.
    """
    undecided = sum(group_of(result, asked_for=asked_for) is Group.UNDECIDED for result in results)
    incomplete = _incomplete(results, replayed, unjudged, planned)
    return incomplete or (f"{undecided} could not be decided" if undecided else "")


def verdict_line(
    results: list[dict],
    *,
    asked_for: bool,
    replayed: bool = False,
    unjudged: int = 0,
    planned: int = 0,
    device: str = "",
    elsewhere: Sized = (),
) -> str:
    """Return the last line of a run: "green: 61 laws hold; 8 do not apply" or "not green: ...".

    The reason comes first. The arguments are those of `not_green`; device: where the run judges;
    elsewhere: the implementations that need another device, and are no part of the run.
    """
    incomplete = _incomplete(results, replayed, unjudged, planned)
    counts = counted(results, asked_for=asked_for, device=device)
    bad = any(group_of(r, asked_for=asked_for) in (Group.FAILS, Group.UNDECIDED) for r in results)
    left_out = ""
    if n := len(elsewhere):
        left_out = f"{n} implementation{'s need' if n > 1 else ' needs'} {OTHER.get(device, 'another device')}"
    word = "not green" if bad or incomplete else "green"
    return f"{word}: {'; '.join(filter(None, [incomplete, counts, left_out]))}"


def is_green(line: str) -> bool:
    """Tell whether a verdict line says green."""
    return line.startswith("green")


def _incomplete(results: list[dict], replayed: bool, unjudged: int, planned: int) -> str:
    """Say what was not judged; "" if everything was."""
    if not results:
        return "nothing was judged"
    if unjudged:
        return f"{unjudged} of {planned} were not judged"
    laws = [result for result in results if result["chapter"] != "test_contract"]
    if replayed and laws and not {PASS, FAIL} & {result["verdict"] for result in laws}:
        return f"no law took the case: {laws[0]['reason']}"
    return ""
