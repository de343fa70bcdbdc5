"""Counts the verdicts of a run by group, and decides whether the run is green.

A run is green if nothing fails or is undecided, and if each implementation that it was asked for
has passed a law. The contract check is no law: it only says that laws can be judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sized
from dataclasses import asdict, dataclass, fields
from enum import Enum

from flash_attest.emulator.devices import DEFAULT
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN

# Reasons that name something this machine, or a tool, lacks. A run stays green despite such unknown
# verdicts.
LACKS = (
    Reason.LAW_OF_OTHER_DEVICE, Reason.NO_SPARSE_MEMORY, Reason.GPU_MEMORY, Reason.NO_SANITIZER, Reason.ASYNCHRONOUS,
)  # fmt: skip
EXCUSED = {why.value for why in LACKS}

# Reasons for which an implementation that nobody named need not be judged.
NOT_HERE = {Reason.OTHER_DEVICE.value, Reason.NOT_INSTALLED.value}
CONTRACT = "test_contract"  # the chapter of the contract check
EXPECTED = "its test expects this failure"  # `known` of a failure that a test catches, as with pytest.raises
MANY = 20  # cases: if none of this many has two keys, the implementation takes no others
MOST_NAMED = 3  # implementations that the last line names; the lines above it have all

OTHER = {"cpu": "a GPU", "cuda": "a CPU"}  # the device of a run -> the one that it does not judge on


class Group(Enum):
    """The groups in which verdicts are counted. Each value has the words for one law and for
    several.
    """

    NOT_LOADED = "cannot be loaded", "cannot be loaded"
    FAILS = "fails", "fail"
    UNDECIDED = "undecided", "undecided"
    HOLDS = "holds", "hold"
    KNOWN = "fails as known", "fail as known"
    NOT_APPLYING = "does not apply", "do not apply"
    OTHER_DEVICE = "needs another device", "need another device"
    SPARSE_MEMORY = "needs sparse memory", "need sparse memory"
    GPU_MEMORY = "needs a larger GPU", "need a larger GPU"
    SANITIZER = "needs compute-sanitizer", "need compute-sanitizer"
    ASYNCHRONOUS = "is beyond racecheck", "are beyond racecheck"

    def words(self, n: int, device: str = "") -> str:
        """Return, for example, "3 hold". device: the device of the run; if given, the text names
        the device that is needed instead.
        """
        text = self.value[n != 1]
        other = OTHER.get(device)
        return f"{n} {text.replace('another device', other) if other else text}"


RED = (Group.NOT_LOADED, Group.FAILS, Group.UNDECIDED)  # a result in one of these is never green
_GROUPS = {
    Reason.OTHER_DEVICE.value: Group.OTHER_DEVICE,
    Reason.LAW_OF_OTHER_DEVICE.value: Group.OTHER_DEVICE,
    Reason.NO_SPARSE_MEMORY.value: Group.SPARSE_MEMORY,
    Reason.GPU_MEMORY.value: Group.GPU_MEMORY,
    Reason.NO_SANITIZER.value: Group.SANITIZER,
    Reason.ASYNCHRONOUS.value: Group.ASYNCHRONOUS,
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
        if result["why"] == Reason.NOT_LOADED.value:
            return Group.NOT_LOADED
        return Group.KNOWN if result["known"] else Group.FAILS
    return {PASS: Group.HOLDS, REFUSED: Group.NOT_APPLYING}[result["verdict"]]


def counted(results: Iterable[dict], *, asked_for: bool, device: str = "") -> str:
    """Return the counts of results, for example "61 laws hold; 8 do not apply; 3 need a GPU".

    A file that cannot be loaded is counted as a file, not as a law.
    """
    counts = Counter(group_of(result, asked_for=asked_for) for result in results)
    files = not_loaded(counts.pop(Group.NOT_LOADED, 0))
    parts = [group.words(n, device) for group in Group if (n := counts[group])]
    if parts:
        number, _, words = parts[0].partition(" ")
        parts[0] = f"{number} {'law' if number == '1' else 'laws'} {words}"
    return "; ".join(filter(None, [files, *parts]))


def not_loaded(files: int) -> str:
    """Return, for example, "1 file cannot be loaded"; "" for none."""
    return f"{files} file{'s' * (files != 1)} {Group.NOT_LOADED.value[0]}" if files else ""


@dataclass(frozen=True)
class Asked:
    """The scope of a run, as it was asked for. It decides what the run needs to be green.

    named: the command names the implementations. Then none is excused because it needs another
        device or a library that is not installed.
    each: each implementation has to pass a law. Without it, one of them has to.
    replayed: one given case is judged, which not every implementation takes.
    contract: the contract check was asked for by its name, so it may stand alone.
    part: this is a part of a run. The laws of an implementation may be in other parts.
    """

    named: bool = False
    each: bool = True
    replayed: bool = False
    contract: bool = False
    part: bool = False

    @classmethod
    def of(cls, environment: Mapping) -> Asked:
        """Read it from the environment in results.json. Older files only have `options`."""
        if isinstance(asked := environment.get("asked"), Mapping):
            return cls(**{f.name: bool(asked[f.name]) for f in fields(cls) if f.name in asked})
        options = environment.get("options") or {}
        named = bool(options.get("impl") or options.get("impl_from"))
        return cls(named, each=named, replayed=bool(options.get("case")), part=bool(environment.get("shard")))

    def as_dict(self) -> dict[str, bool]:
        """Return it as results.json has it."""
        return asdict(self)


def unjudged(results: Iterable[dict], asked: Asked) -> dict[str, str]:
    """Return the implementations of which no law was judged although the run was asked for them:
    name -> why.
    """
    by_impl: dict[str, list[dict]] = {}
    for result in results:
        by_impl.setdefault(result["impl"], []).append(result)
    lacking = {impl: own for impl, own in by_impl.items() if not _is_judged(own, asked)}
    if asked.part:
        return {}
    if len(lacking) < len(by_impl):
        if asked.replayed or not asked.each:
            return {}
        if not asked.named:
            lacking = {impl: own for impl, own in lacking.items() if not {r.get("why") for r in own} <= NOT_HERE}
    return {impl: _why_not(own) for impl, own in lacking.items()}


def _is_judged(own: list[dict], asked: Asked) -> bool:
    """Return whether a law of an implementation passed. If one fails or is undecided, the run is
    not green anyway, and says why.
    """
    groups = {group_of(result, asked_for=asked.named) for result in own}
    if groups & set(RED):
        return True
    laws = _laws(own)
    if not laws and asked.contract:
        return Group.HOLDS in groups
    return any(result["verdict"] == PASS or result["known"] == EXPECTED for result in laws) and not _of_one_key(laws)


def _of_one_key(laws: list[dict]) -> bool:
    """Return whether no case of the laws that pass had two keys or more. With one key out is v,
    whatever a kernel makes of the scores. A few cases may have one key by chance.
    """
    lengths = [seqlen_k for result in laws if result["verdict"] == PASS for _, seqlen_k, *_ in result["tried"]]
    return len(lengths) >= MANY and max(lengths) <= 1


def _laws(results: list[dict]) -> list[dict]:
    return [result for result in results if result["chapter"] != CONTRACT]


def _why_not(own: list[dict]) -> str:
    """Say why no law of an implementation was judged."""
    laws = _laws(own)
    if not laws:
        return own[0]["reason"] or "only its contract was checked"
    if _of_one_key(laws):
        return "no case has two keys or more: declare that it supports longer ones"
    if known := sum(result["verdict"] == FAIL for result in laws):
        return (
            "the law that applies is a known failure"
            if known == 1
            else f"all {known} laws that apply are known failures"
        )
    (reason, n), *others = Counter(result["reason"] for result in laws).most_common()
    return f"{reason} ({n} of {len(laws)} laws; -v has the other reasons)" if others else reason


def not_green(results: list[dict], asked: Asked, *, left: int = 0, planned: int = 0) -> str:
    """Say why a run is not green, apart from laws that fail; "" if nothing else is wrong.

    Laws that do not apply on this device or machine do not count, nor do implementations of another
    device, unless they were asked for by name. A replay is green only if a law took its case.
    left: how many of the planned laws have no verdict.
    """
    undecided = sum(group_of(result, asked_for=asked.named) is Group.UNDECIDED for result in results)
    incomplete = _incomplete(results, asked, left, planned)
    return incomplete or (f"{undecided} could not be decided" if undecided else "")


def verdict_line(
    results: list[dict],
    asked: Asked,
    *,
    left: int = 0,
    planned: int = 0,
    device: str = "",
    emulated: str = "",
    elsewhere: Sized = (),
    trouble: str = "",
    lacking: Mapping[str, str] | None = None,
) -> str:
    """Return the last line of a run: "green: 61 laws hold; 8 do not apply" or "not green: ...".

    The reason comes first. The arguments are those of `not_green`; device: where the run judges;
    emulated: the GPU whose kernels ran in the emulator, which is named if it is not the default;
    elsewhere: the implementations that need another device, and are no part of the run; trouble:
    why the report is not on disk; lacking: what `unjudged` returns, if it is known.
    """
    incomplete = _incomplete(results, asked, left, planned, lacking)
    counts = counted(results, asked_for=asked.named, device=device)
    bad = any(group_of(r, asked_for=asked.named) in RED for r in results)
    left_out = ""
    if n := len(elsewhere):
        left_out = f"{n} implementation{'s need' if n > 1 else ' needs'} {OTHER.get(device, 'another device')}"
    word = "not green" if bad or incomplete or trouble else "green"
    no_law = "" if bad or incomplete else _without_laws(results, asked)
    parts = [trouble, incomplete, counts, no_law, left_out]
    where = f" on a CPU, as {emulated}" if emulated not in ("", f"sm_{DEFAULT}") else ""
    return f"{word}{where}: {'; '.join(filter(None, parts))}"


def concluded(results: list[dict], asked: Asked, **more: object) -> dict:
    """Return what results.json says about a whole run: its last line, whether it is green, and of
    which implementations no law was judged. more: as for `verdict_line`.
    """
    lacking = unjudged(results, asked)
    line = verdict_line(results, asked, lacking=lacking, **more)
    return {"verdict": line, "green": is_green(line), "unjudged": lacking}


def is_green(line: str) -> bool:
    """Tell whether a verdict line says green."""
    return line.startswith("green")


def _incomplete(
    results: list[dict], asked: Asked, left: int, planned: int, lacking: Mapping[str, str] | None = None
) -> str:
    """Say what was not judged; "" if everything was."""
    if not results:
        return "nothing was judged"
    if left:
        return f"{left} of {planned} were not judged"
    laws = _laws(results)
    if asked.replayed and laws and not {PASS, FAIL} & {result["verdict"] for result in laws}:
        return f"no law took the case: {laws[0]['reason']}"
    return _named(unjudged(results, asked) if lacking is None else lacking)


def _named(lacking: Mapping[str, str]) -> str:
    """Return "nothing was judged of mine: takes no bias"; "" if nothing is lacking."""
    if not lacking:
        return ""
    named = [f"{impl}: {reason}" for impl, reason in sorted(lacking.items())[:MOST_NAMED]]
    more = [f"{len(lacking) - MOST_NAMED} more"] if len(lacking) > MOST_NAMED else []
    return f"nothing was judged of {', of '.join([*named, *more])}"


def _without_laws(results: list[dict], asked: Asked) -> str:
    """Return what a green run says if none of its laws passed, which may be so in a part of a run
    and in a contract check.
    """
    if not _laws(results):
        return "only the contract was checked"
    if asked.part and not any(_is_judged(own, asked) for own in [_laws(results)]):
        return "no law was judged in this part"
    return ""
