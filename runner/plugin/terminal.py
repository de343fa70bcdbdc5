"""Prints what a run found: failures by cause, a row for each implementation, and the next steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.beside import ALSO
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, law_name
from flash_attest.runner.causes import Cause, in_words
from flash_attest.runner.green import RED, Group, group_of
from flash_attest.runner.page.records import KINDS, worst
from flash_attest.runner.page.words import ELSEWHERE, KNOWN, UNLOADED, VERDICTS, Verdict
from flash_attest.runner.untrusted.observed import sentences

COLOURS = {
    PASS: "green", FAIL: "bold red", UNLOADED: "bold red", REFUSED: "bright_black", UNKNOWN: "yellow", KNOWN: "yellow",
    ELSEWHERE: "bright_black",
}  # fmt: skip
COLUMNS = {  # heading of the table: the groups that it counts
    "pass": (Group.HOLDS,),
    "fail": (Group.FAILS,),
    "not loaded": (Group.NOT_LOADED,),
    "known failure": (Group.KNOWN,),
    "unknown": (Group.UNDECIDED,),
    "refused": (Group.NOT_APPLYING,),
    "not here": (Group.OTHER_DEVICE, Group.SPARSE_MEMORY, Group.GPU_MEMORY, Group.SANITIZER, Group.ASYNCHRONOUS),
}
ALWAYS = ("pass", "fail", "refused")  # columns that are shown even if all of them are 0
MOST_CAUSES = 8  # causes in the last lines; the page has all of them


Left = Mapping[str, Mapping[str, int]]  # implementation -> chapter -> how many laws have no verdict


def print_rows(results: list[dict], console: Console, *, asked_for: bool, left: Left = MappingProxyType({})) -> None:
    """Print one row for each implementation: verdict, how many laws hold and fail, cases, worst z,
    seconds. left: the laws that an unfinished run has not judged.
    """
    without = Counter({(impl,): sum(of.values()) for impl, of in left.items()})
    _print_table(results, console, lambda result: (result["impl"],), ("implementation",), asked_for, without)


def print_chapters(
    results: list[dict], console: Console, *, asked_for: bool, left: Left = MappingProxyType({})
) -> None:
    """Print such rows for each chapter of each implementation."""

    def key(impl: str, chapter: str) -> tuple[str, ...]:
        return impl, chapter.removeprefix("test_")

    without = Counter({key(impl, chapter): n for impl, of in left.items() for chapter, n in of.items()})
    headings = ("implementation", "chapter")
    _print_table(results, console, lambda r: key(r["impl"], r["chapter"]), headings, asked_for, without)


def _print_table(
    results: list[dict],
    console: Console,
    key: Callable[[dict], tuple[str, ...]],
    headings: tuple[str, ...],
    asked_for: bool,
    without: Counter[tuple[str, ...]],
) -> None:
    rows: dict[tuple[str, ...], list[dict]] = {}
    for result in sorted(results, key=key):
        rows.setdefault(key(result), []).append(result)
    counts = {name: Counter(group_of(law, asked_for=asked_for) for law in laws) for name, laws in rows.items()}
    total = sum(counts.values(), Counter())
    shown = {
        heading: groups
        for heading, groups in COLUMNS.items()
        if heading in ALWAYS or any(total[group] for group in groups)
    }
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (*headings, "verdict"):
        table.add_column(heading, no_wrap=True)
    unfinished = any(without[name] for name in rows)
    for heading in (*shown, *["not judged"] * unfinished, "cases", "worst z", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    before = None
    for name, laws in rows.items():
        verdict = verdict_of(laws, asked_for=asked_for, left=without[name])
        numbers = [str(n) if (n := sum(counts[name][group] for group in groups)) else "" for groups in shown.values()]
        first = "" if len(name) > 1 and name[0] == before else name[0]
        before = name[0]
        table.add_row(
            first,
            *name[1:],
            f"[{COLOURS[verdict.name]}]{verdict.word}[/]",
            *numbers,
            *[str(without[name] or "")] * unfinished,
            f"{sum(law['cases'] for law in laws):,}",
            worst_z_of(laws),
            f"{sum(law['seconds'] for law in laws):.1f}",
        )
    console.print(table)


def verdict_of(laws: list[dict], *, asked_for: bool, left: int = 0) -> Verdict:
    """Return the verdict that stands for several: the worst of those that apply here. It is unknown
    if nothing fails, and `left` further laws have no verdict.
    """
    kinds = {KINDS[group_of(law, asked_for=asked_for)] for law in laws} | ({UNKNOWN} if left else set())
    return next(verdict for name, verdict in VERDICTS.items() if name in kinds)


def worst_z_of(laws: list[dict]) -> str:
    """Return the worst z and its tensor, "3.21 dq"; "" if nothing was measured."""
    z, tensor = worst(laws)
    return "" if z is None else f"{float(z):.3g} {tensor}"


def print_message(result: dict, console: Console) -> None:
    """Print the whole message of a failure."""
    say(console, f"[bold red]{escape(result['impl'])}: {escape(law_name(result['law']))}[/]")
    say(console, f"{escape(result['message'].rstrip() or result['reason'])}\n")


def print_failures(causes: list[Cause], console: Console, shown: dict | None = None) -> None:
    """Print the whole message of each cause, and two lines for each other law that fails because of
    it. shown: the result whose message was printed before.
    """
    if line := in_words(causes):
        say(console, f"[bold]{line}[/]\n")
    for cause in causes:
        if shown is not None and all(cause.first[name] == shown[name] for name in ("impl", "law")):
            say(console, f"[bold red]{escape(cause.impl)}: {escape(law_name(cause.first['law']))}[/]")
            say(console, f"{escape(cause.heading)}\n(the whole message stands further up, where it was found)\n")
        else:
            print_message(cause.first, console)
        if cause.others:
            n = len(cause.others)
            law = "1 more law fails" if n == 1 else f"{n} more laws fail"
            say(console, f"[bold]{law} for the same cause[/]")
        for other in cause.others:
            say(console, f"  {escape(law_name(other['law']))}: {escape(other['reason'])}")
            if other["replay"]:
                say(console, f"      [bright_black]{escape(other['replay'])}[/]")
        console.print()


def undecided_in(results: list[dict], *, asked_for: bool) -> list[dict]:
    """Return what could not be decided, without laws that wait for a contract that fails."""
    broken = {r["impl"] for r in results if r["chapter"] == "test_contract" and r["verdict"] == FAIL}
    undecided = [r for r in results if group_of(r, asked_for=asked_for) is Group.UNDECIDED]
    return [r for r in undecided if not (r["why"] == Reason.CONTRACT.value and r["impl"] in broken)]


def print_absent(results: list[dict], console: Console) -> None:
    """Print which implementations lack a library, and how to install it."""
    by_reason: dict[str, list[str]] = {}
    for result in results:
        if result["why"] == Reason.NOT_INSTALLED.value:
            by_reason.setdefault(result["reason"], []).append(result["impl"])
    for reason, names in by_reason.items():
        say(console, escape(f"not judged here: {', '.join(sorted(names))} ({reason})"))


def print_unjudged(results: list[dict], console: Console, lacking: Mapping[str, str]) -> None:
    """Print the implementations without a judged law, and why. `print_absent` has those that are
    not installed. lacking: what green.unjudged returns.
    """
    absent = {result["impl"] for result in results if result.get("why") == Reason.NOT_INSTALLED.value}
    for impl, why in sorted(lacking.items()):
        if impl not in absent:
            say(console, f"[yellow]not judged[/]  {escape(impl)}  {escape(why)}")


def print_undecided(results: list[dict], console: Console, *, asked_for: bool) -> None:
    """Print why laws could not be decided: a line for each reason, and how to try one again."""
    undecided = undecided_in(results, asked_for=asked_for)
    replays = {(r["impl"], r["reason"]): r["replay"] for r in reversed(undecided)}
    for impl, _, text in _by_reason(undecided):
        say(console, f"[yellow]unknown[/]  {escape(impl)}  {escape(text)}")
    for (_, reason), replay in sorted(replays.items()):
        if replay and reason:
            say(console, f"      {escape(replay)}")
    for impl, _, text in _by_reason([r for r in results if r.get("why") == Reason.ASYNCHRONOUS.value]):
        say(console, f"[bright_black]not judged[/]  {escape(impl)}  {escape(text)}")


def print_remarks(results: list[dict], console: Console, *, asked_for: bool) -> None:
    """Print remarks that the table does not have: why laws do not apply, what a pass means, known
    failures.
    """
    for impl, verdict, text in _by_reason([r for r in results if group_of(r, asked_for=asked_for) not in RED]):
        say(console, f"[{COLOURS[verdict]}]{VERDICTS[verdict].word:7}[/]  {escape(impl)}  {escape(text)}")
    for result in results:
        if result["verdict"] == FAIL and result["beside"].startswith(ALSO):
            say(
                console,
                f"{FAIL:7}  {escape(result['impl'])}  {escape(law_name(result['law']))}: {escape(result['beside'])}",
            )


def print_observed(results: list[dict], console: Console) -> None:
    """Print which operators of PyTorch implementations used, with --untrusted."""
    for impl, text in sentences(results):
        say(console, f"[cyan]observed[/] {escape(impl)}  {escape(text)}")


def print_causes(causes: list[Cause], console: Console) -> None:
    """Print each cause in two lines: what is wrong, and the command that shows it again."""
    for cause in causes[:MOST_CAUSES]:
        shared = f" ({cause.shared})" if cause.shared else ""
        law = "" if cause.first["replay"] else f"{law_name(cause.first['law'])} "
        say(console, f"[bold red]fail[/]  {escape(cause.impl)}: {escape(law + cause.heading + shared)}")
        if cause.first["replay"]:
            say(console, f"      {escape(cause.first['replay'])}")
    if len(causes) > MOST_CAUSES:
        say(console, f"      and {len(causes) - MOST_CAUSES} more: the page has all of them")


def _by_reason(results: list[dict]) -> list[tuple[str, str, str]]:
    """Merge (impl, verdict, text) entries with the same reason into one text that names their
    laws.
    """
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        reason = f"{result['reason']} ({result['known']})" if result["known"] else result["reason"]
        if reason:
            verdict = KNOWN if result["known"] else result["verdict"]
            grouped.setdefault((result["impl"], verdict, reason), []).append(law_name(result["law"]))
    return [
        (impl, verdict, f"{laws[0] if len(laws) == 1 else f'{len(laws)} laws'}: {reason}")
        for (impl, verdict, reason), laws in sorted(grouped.items())
    ]


def elsewhere_in_words(elsewhere: Mapping[str, str]) -> str:
    """Return a line about implementations that need another device. elsewhere: name -> why it
    cannot be judged here.
    """
    if not elsewhere:
        return ""
    by_reason: dict[str, list[str]] = {}
    for name, reason in elsewhere.items():
        by_reason.setdefault(reason.partition(";")[0], []).append(name)
    parts = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
    return f"not judged here: {'; '.join(parts)}"


def say(console: Console, text: str) -> None:
    """Print a line with rich's markup, which is never wrapped."""
    console.print(text, highlight=False, soft_wrap=True)
