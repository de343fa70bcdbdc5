"""Writes what was found into docs/findings.md: python -m flash_attest.wild.page.

A test compares the two.
"""

from __future__ import annotations

import json
import shlex

from flash_attest.places import ROOMS
from flash_attest.wild.findings import Finding, findings
from flash_attest.wild.packages import BY_TITLE, PACKAGES, SOURCES, Library, Source

PAGE = ROOMS / "docs" / "findings.md"
# What `flash-attest wild --write` wrote, without and with a GPU.
MEASURED = [ROOMS / "docs" / "measured" / name for name in ("wild.json", "wild-cuda.json")]
COUNTS = ("pass", "known", "fail", "refused", "unknown")
START = "<!-- what was found: python -m flash_attest.wild.page -->\n"


def page(text: str) -> str:
    """Return the page with the findings and verdicts that are current."""
    before, _, _ = text.partition(START)
    every = findings()
    return before + START + "\n".join([*_packages(every), "", *_overview(every), "", *_sections(every)])


def _packages(every: list[Finding]) -> list[str]:
    """Return the table of packages: what the laws say of each, a row for each device."""
    measured = [json.loads(path.read_text(encoding="utf-8")) for path in MEASURED if path.exists()]
    columns = ["package", "version", "device", *COUNTS, "cases", "seconds", "findings"]
    lines = ["", "## Packages", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    numbers: dict[str, list[int]] = {}
    for finding in every:
        numbers.setdefault(finding.package, []).append(finding.number)
    for key, package in (PACKAGES | SOURCES).items():
        links = ", ".join(f"[{number}](#finding-{number})" for number in numbers.get(package.title, ()))
        first = [package.title, package.judged, f"needs {package.needs.partition(',')[0]}" if package.needs else ""]
        rows = [verdicts[key] for verdicts in measured if key in verdicts]
        links = links or ("none" if rows else "not judged")
        if not rows:
            lines.append(f"| {' | '.join([*first, *[''] * (len(COUNTS) + 2), links])} |")
        for row in rows:
            counts = [str(row["counts"][count]) for count in COUNTS]
            cells = [package.title, row["version"], row["device"], *counts, str(row["cases"]), f"{row['seconds']:.0f}"]
            lines.append(f"| {' | '.join([*cells, links])} |")
            links = ""  # stand in the first row
    return lines


def _overview(every: list[Finding]) -> list[str]:
    lines = ["## Findings\n", "| | package | what is wrong | GPU | status |", "|---|---|---|---|---|"]
    for each in every:
        name = f"[{each.number}](#finding-{each.number})"
        lines.append(
            f"| {name} | {each.package} {each.version} | {_escaped(each.sentence)} | {each.gpu} | {each.status} |"
        )
    return lines


def _sections(every: list[Finding]) -> list[str]:
    lines: list[str] = []
    for each in every:
        laws = ", ".join(f"[{law}](use/laws.md#{law})" for law in each.laws) or each.law
        lines += [
            f"### Finding {each.number}", "",
            f"**{each.package} {each.version}.** {_escaped(each.sentence)}", "",
            f"{_escaped(each.consequence)}", "",
            f"- law: {laws}",
            f"- smallest case: `{each.case}`",
            f"- to run it: {_installation(each)}",
            f"- found {each.found}; {each.status}; on a GPU: {each.gpu}", "",
            "```python", each.code, "```", "",
            "```text", each.shows, "```", "",
        ]  # fmt: skip
    return lines


def _installation(finding: Finding) -> str:
    """Return how the package of a proof is made available."""
    package = BY_TITLE[finding.package]
    if isinstance(package, Library):
        return f"{package.title} {finding.version}, on a machine with a GPU"
    command = f"`pip install --no-deps {shlex.join(package.installed_for(finding.version))}`"
    if isinstance(package, Source):
        return f"set `{package.variable}` to {package.place}" + (f", and {command}" if package.also else "")
    return f"{command}, beside torch and Triton"


def _escaped(text: str) -> str:
    """Return text for a table of Markdown."""
    return text.replace("|", "\\|").replace("<", "\\<")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
