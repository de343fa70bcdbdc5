"""Turns undecided laws into errors in the JUnit file of pytest (--junit-xml), where they would
otherwise be skipped tests.

A CI system shows a skipped test as if nothing were wrong. A law that could not be decided is never
green.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree


def mark_undecided(file: Path, undecided: Mapping[str, str]) -> None:
    """Rewrite a JUnit file.

    undecided: pytest's id of a test -> why its law could not be decided.

    Raises OSError if the file cannot be read or written, and ParseError if it is not XML.
    """
    tree = ElementTree.parse(file)
    reasons = {_address(test): reason for test, reason in undecided.items()}
    for suite in tree.iter("testsuite"):
        for case in suite.iter("testcase"):
            reason = reasons.get((case.get("classname", ""), case.get("name", "")))
            skipped = case.find("skipped")
            if reason is None or skipped is None:
                continue
            skipped.tag, skipped.attrib = "error", {"message": f"undecided: {reason}"}
            for count, step in (("skipped", -1), ("errors", 1)):
                suite.set(count, str(int(suite.get(count, "0")) + step))
    tree.write(file, encoding="utf-8", xml_declaration=True)


def _address(test: str) -> tuple[str, str]:
    """Convert "tests/test_a.py::TestB::test_c[d]" to ("tests.test_a.TestB", "test_c[d]"), as pytest
    writes it into the file.
    """
    head, bracket, parameters = test.partition("[")
    path, *names = head.split("::")
    return ".".join([path.removesuffix(".py").replace("/", "."), *names[:-1]]), names[-1] + bracket + parameters
