"""Tells a summary: as summary.json, as index.html, and as a table on the terminal."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flash_attest.runner.plugin.folder import Folder
from flash_attest.sweep.page import bound, called, page, verdict_of
from flash_attest.sweep.store import Store
from flash_attest.sweep.summary import summary

WIDTH = 130  # of a line in a log; a terminal has its own
JSON, PAGE = "summary.json", "index.html"
GREEN, NOT_GREEN, NO_DISK = 0, 1, 3  # exit statuses


def console() -> Console:
    """Return a console for the terminal, or for a log."""
    there = Console(soft_wrap=True)
    return there if there.is_terminal else Console(soft_wrap=True, width=WIDTH)


def write_report(store: Store, directory: Path, console: Console) -> int:
    """Write the report of a file and print it. Returns the exit status."""
    report = summary(store)
    written = False
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = write(report, Folder(directory, lambda text: console.print(text, style="yellow", highlight=False)))
    except OSError as error:
        console.print(f"[yellow]--report {directory}: cannot be written to ({error.strerror})[/]", highlight=False)
    print_table(report, console)
    if written:
        console.print(f"report: {directory / PAGE} and {JSON}", highlight=False)
    for line in report["not_green"]:
        console.print(f"[yellow]not green:[/] {escape(line)}", highlight=False)
    console.print(escape(verdict_of(report)), highlight=False, soft_wrap=True)
    return NOT_GREEN if report["not_green"] else GREEN if written else NO_DISK


def write(report: dict, folder: Folder) -> bool:
    """Write both files, each as a whole or not at all. Returns whether that worked."""
    html = page(report)
    return folder.write(JSON, json.dumps(report, indent=1) + "\n") and folder.write(PAGE, html)


def print_table(report: dict, console: Console) -> None:
    """Print a line for each implementation and layer, then what was found."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (
        "implementation",
        "layer",
        "on",
        "runs",
        "repeats",
        "found",
        "unknown",
        "refused",
        "a drawn case",
        "a repeat",
        "clean since",
    ):
        table.add_column(
            heading, justify="left" if heading in ("implementation", "layer", "on", "clean since") else "right"
        )
    for name, one in report["implementations"].items():
        for n, row in enumerate(one["layers"]):
            since = f"[red]{one['findings']} found[/]" if one["findings"] else (one["clean_since"] or "")
            first = escape(called(name, one)) if n == 0 else ""
            table.add_row(
                first, row["layer"], row["device"], str(row["runs"]), str(row["repeats"]),
                f"[bold red]{row['failed']}[/]" if row["failed"] else "0",
                f"[yellow]{row['undecided']}[/]" if row["undecided"] else "0", str(row["refused"]),
                bound(row["bound_of_a_case"]), bound(row["bound_of_a_repeat"]), since,
            )  # fmt: skip
    console.print(table)
    for row in report["given_up"]:
        line = f"{row['impl']}, {row['layer']}: drawn no more: {row['reason']}"
        console.print(f"[yellow]{escape(line)}[/]", highlight=False, soft_wrap=True)
    for finding in report["findings"]:
        if finding["current"]:
            style = "yellow" if finding["known"] else "bold red"
            console.print(f"[{style}]{escape(finding['impl'])}, {finding['layer']}: {escape(finding['headline'])}[/]",
                          highlight=False, soft_wrap=True)  # fmt: skip
            by = f"found by {finding['times']} run{'s' * (finding['times'] > 1)}"
            for line in (f"{by}; {finding['repeated'] or 'not repeated yet'}", finding["replay"]):
                console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
