"""Prints the end of a run on the terminal, from its report: failures, the table, next steps, and
the verdict in the last line.
"""

from __future__ import annotations

import io
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.markup import escape

from flash_attest.runner.causes import causes_of
from flash_attest.runner.green import Asked
from flash_attest.runner.plugin import annotations, junit, terminal, times
from flash_attest.runner.plugin.outcomes import result_of
from flash_attest.runner.plugin.report import Report


def print_first(result: dict, out) -> None:
    """Print the whole message of the first failure, while other laws are judged. out: pytest's
    terminal reporter.
    """
    terminal.print_message(result, console_of(out))
    out.flush()


def print_failures(report: Report, out, shown: dict | None = None) -> None:
    """Print the failures by cause. shown: the result whose message stands further up."""
    if causes := causes_of(report.results):
        out.section("failures")
        terminal.print_failures(causes, console_of(out), shown)


def print_verdicts(report: Report, out, *, asked: Asked, verbose: bool) -> None:
    """Print the table, the laws that could not be decided, and each cause in two lines. verbose:
    also print remarks and chapters.
    """
    results, environment, asked_for = report.results, report.environment, asked.named
    left = environment.get("left", {})
    console = console_of(out)
    out.section("verdicts")
    if verbose:
        terminal.print_chapters(results, console, asked_for=asked_for, left=left)
        console.print()
        terminal.print_remarks(results, console, asked_for=asked_for)
        terminal.say(console, escape(times.sentence(results, environment)))
        console.print()
    terminal.print_rows(results, console, asked_for=asked_for, left=left)
    if line := terminal.elsewhere_in_words(environment.get("elsewhere", {})):
        terminal.say(console, escape(line))
    terminal.print_absent(results, console)
    if environment["complete"]:
        terminal.print_unjudged(results, console, environment["unjudged"])
    terminal.print_undecided(results, console, asked_for=asked_for)
    terminal.print_observed(results, console)
    terminal.print_causes(causes_of(results), console)


def print_annotations(
    results: list[dict], out: pytest.TerminalReporter, asked: Asked, lacking: Mapping[str, str]
) -> None:
    """Print failures, and what could not be decided or judged, as annotations in a job of GitHub
    Actions. lacking: what green.unjudged returns.
    """
    if annotations.wanted():
        out.ensure_newline()
        undecided = terminal.undecided_in(results, asked_for=asked.named)
        for line in annotations.annotations(causes_of(results), undecided, lacking, results):
            out.write_line(line)


@contextmanager
def no_commands(out: pytest.TerminalReporter) -> Iterator[None]:
    """Print messages in this block: in a job of GitHub Actions no line of them is a command."""
    token = secrets.token_hex(8)
    if annotations.wanted():
        out.ensure_newline()
        out.write_line(f"::stop-commands::{token}")
    yield
    if annotations.wanted():
        out.ensure_newline()
        out.write_line(f"::{token}::")


def console_of(out) -> Console:
    """Return a console that prints in the same way as pytest's terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack a character of a message
        sys.stdout.reconfigure(errors="backslashreplace")
    width, markup = max(130, out._tw.fullwidth), out._tw.hasmarkup
    # No emoji: ":x:" in a message is text.
    return Console(file=sys.stdout, width=width, force_terminal=markup, soft_wrap=True, emoji=False)


class Run(Protocol):
    """A run that judges laws. undecided: test ids of the laws that could not be decided, and
    why.
    """

    undecided: dict[str, str]

    def last_line(self) -> tuple[str, bool]:
        """Return the verdict in a line, and whether it is green."""


class LastLine:
    """Prints the verdict of a run after everything else, and marks undecided laws in the JUnit
    file.
    """

    def __init__(self, run: Run):
        self.run = run

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session):
        result = yield
        text, green = self.run.last_line()
        out = session.config.pluginmanager.get_plugin("terminalreporter")
        if file := session.config.getoption("xmlpath", None):
            try:
                prefix = session.config.getoption("junitprefix", None)
                junit.mark_undecided(Path(file), self.run.undecided, prefix or "")
            except (OSError, ElementTree.ParseError) as error:
                if out is not None:
                    out.write_line(f"--junit-xml {file}: unknown laws are skipped tests in it: {error}", yellow=True)
        if text and out is not None:
            out.ensure_newline()
            out.write_line(text, bold=True, green=green, red=not green)
        return result


@contextmanager
def without_laws(out: pytest.TerminalReporter) -> Iterator[None]:
    """Hide failed laws from pytest's own sections in this block. They are printed by cause."""
    failed = out.stats.get("failed", [])
    out.stats["failed"] = [report for report in failed if result_of(report) is None]
    try:
        yield
    finally:  # pytest prints the line that counts failures later
        out.stats["failed"] = failed
        if not failed:
            del out.stats["failed"]
