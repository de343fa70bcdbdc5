"""Writes what was found into docs/findings.md: python -m flash_attest.wild.page.

A test compares the two.
"""

from __future__ import annotations

import json

from flash_attest.places import ROOMS
from flash_attest.wild.findings import Finding, findings
from flash_attest.wild.packages import PACKAGES, SOURCES

PAGE = ROOMS / "docs" / "findings.md"
MEASURED = ROOMS / "docs" / "measured" / "wild.json"  # what `flash-attest wild --write` wrote
COUNTS = ("pass", "known", "refused", "unknown")
START = "<!-- what was found: python -m flash_attest.wild.page -->\n"


def page(text: str) -> str:
    """Return the page with the findings and verdicts that are current."""
    before, _, _ = text.partition(START)
    return before + START + "\n".join([*_packages(), "", *_overview(), "", *_sections()])


def _packages() -> list[str]:
    """Return the table of packages: what the laws say of each."""
    verdicts = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    columns = ["package", "version", "device", *COUNTS, "cases", "seconds", "findings"]
    lines = ["", "## Packages", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    numbers: dict[str, list[int]] = {}
    for finding in findings():
        numbers.setdefault(finding.package, []).append(finding.number)
    for key, package in (PACKAGES | SOURCES).items():
        name = getattr(package, "repository", package.name)
        row = verdicts.get(key)
        if row is None:
            cells = [package.judged, f"needs {package.needs.partition(',')[0]}" if package.needs else "not judged"]
            cells += [""] * (len(COUNTS) + 2)
        else:
            cells = [row["version"], row["device"], *(str(row["counts"][count]) for count in COUNTS)]
            cells += [str(row["cases"]), f"{row['seconds']:.0f}"]
        links = ", ".join(f"[{number}](#finding-{number})" for number in numbers.get(name, ())) or "none"
        lines.append(f"| {' | '.join([name, *cells, links])} |")
    return lines


def _overview() -> list[str]:
    lines = ["## Findings\n", "| | package | what is wrong | GPU | status |", "|---|---|---|---|---|"]
    for each in findings():
        name = f"[{each.number}](#finding-{each.number})"
        lines.append(
            f"| {name} | {each.package} {each.version} | {_escaped(each.sentence)} | {each.gpu} | {each.status} |"
        )
    return lines


def _sections() -> list[str]:
    lines: list[str] = []
    for each in findings():
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
    for package in PACKAGES.values():
        if package.name == finding.package:
            others = "".join(f" {name}" for name in package.also)
            return f"`pip install --no-deps {package.name}=={finding.version}{others}`, beside torch and Triton"
    source = next(source for source in SOURCES.values() if source.repository == finding.package)
    return f"set `{source.variable}` to {source.place}"


def _escaped(text: str) -> str:
    """Return text for a table of Markdown."""
    return text.replace("|", "\\|").replace("<", "\\<")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
