"""Writes report.md: the verdict of a run in Markdown, for the summary of a CI job or a comment on a
pull request.
"""

from __future__ import annotations

from collections import Counter

from flash_attest.properties.judging.verdict import law_name
from flash_attest.runner.causes import causes_of, in_words
from flash_attest.runner.green import Asked, Group, group_of
from flash_attest.runner.plugin.terminal import undecided_in, verdict_of, worst_z_of

MOST_CAUSES = 20
LONGEST_MESSAGE = 4000  # characters: job summaries are cut at 1 MiB, comments at 64 KiB


def summary(environment: dict, results: list[dict]) -> str:
    """Return the Markdown text of a report: the verdict, one row for each implementation, each
    cause with its message.
    """
    lines = [f"## flash-attest: {_text(environment.get('verdict') or environment['state'])}", ""]
    facts = [environment.get("device_name"), f"profile {environment.get('profile')}", f"seed {environment.get('seed')}"]
    lines += [f"{', '.join(_text(fact) for fact in facts if fact)}: {_code(environment['command'])}", ""]
    lines += [
        "| implementation | verdict | pass | fail | unknown | cases | worst z |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    named = Asked.of(environment).named
    for impl in sorted({result["impl"] for result in results}):
        laws = [result for result in results if result["impl"] == impl]
        counts = Counter(group_of(law, asked_for=named) for law in laws)
        numbers = [counts[group] for group in (Group.HOLDS, Group.FAILS, Group.UNDECIDED)]
        cases = sum(law["cases"] for law in laws)
        left = sum(environment.get("left", {}).get(impl, {}).values())
        verdict = verdict_of(laws, asked_for=named, left=left)
        cells = [_text(impl), verdict.word, *numbers, f"{cases:,}", worst_z_of(laws)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", *(f"- {_text(remark)}" for remark in environment.get("remarks", ()))]
    causes = causes_of(results)
    if line := in_words(causes):
        lines += ["", f"{line}."]
    for cause in causes[:MOST_CAUSES]:
        shared = f" ({_text(cause.shared)})" if cause.shared else ""
        lines += ["", f"### {_text(cause.impl)}: {_text(cause.heading)}{shared}", ""]
        lines += [_code(cause.first["replay"]), ""] if cause.first["replay"] else []
        lines += [
            "<details><summary>the whole message</summary>",
            "",
            *_block(cause.first["message"]),
            "",
            "</details>",
        ]
        lines += ["", *(f"- {_text(law_name(other['law']))}: {_text(other['reason'])}" for other in cause.others)]
    reasons = {(r["impl"], r["reason"]): r for r in undecided_in(results, asked_for=named)}
    lines += ["", "### Unknown", ""] if reasons else []
    for result in reasons.values():
        replay = f": {_code(result['replay'])}" if result["replay"] else ""
        lines.append(f"- {_text(result['impl'])}: {_text(law_name(result['law']))}: {_text(result['reason'])}{replay}")
    lacking = environment.get("unjudged") or {}
    lines += ["", "### Not judged", ""] if lacking else []
    lines += [f"- {_text(impl)}: {_text(why)}" for impl, why in sorted(lacking.items())]
    if len(causes) > MOST_CAUSES:
        lines += ["", f"{len(causes) - MOST_CAUSES} more causes: index.html has all of them."]
    return "\n".join(lines).rstrip() + "\n"


def _text(words: object) -> str:
    """Escape text, so that no character of an implementation's message has a meaning in Markdown or
    HTML.
    """
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]()#+!|~" else c for c in " ".join(str(words).split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(words: str) -> str:
    """Return a code span, which may contain backticks."""
    fence = "`"
    while fence in words:
        fence += "`"
    pad = " " if words.startswith("`") or words.endswith("`") else ""
    return f"{fence}{pad}{' '.join(words.split())}{pad}{fence}"


def _block(message: str) -> list[str]:
    """Return a code block, shortened if it is too long."""
    text = (
        message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}\n... (index.html has all of it)"
    )
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}text", *text.rstrip().splitlines(), fence]
