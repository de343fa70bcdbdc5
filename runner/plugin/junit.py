"""Turns undecided laws into errors in the JUnit file of pytest (--junit-xml), where they would
otherwise be skipped tests.

A CI system shows a skipped test as if nothing were wrong. A law that could not be decided is never
green, nor is an implementation of which no law was judged: its first test becomes an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0


def mark_undecided(file: Path, undecided: Mapping[str, str], prefix: str = "") -> None:
    """Rewrite a JUnit file. undecided: the id of a test, as pytest has it -> why it is not green.

    Raises OSError if the file cannot be read or written, and ParseError if it is not XML.
    """
    tree = ElementTree.parse(file)
    reasons = {_address(test, prefix): INVALID.sub("?", reason) for test, reason in undecided.items()}
    for suite in tree.iter("testsuite"):
        for case in suite.iter("testcase"):
            _drop_results(case)
            reason = reasons.get((case.get("classname", ""), case.get("name", "")))
            if reason is None or any(case.find(name) is not None for name in ("failure", "error")):
                continue
            if (skipped := case.find("skipped")) is not None:
                case.remove(skipped)
                _add(suite, "skipped", -1)
            ElementTree.SubElement(case, "error", {"message": reason}).text = reason
            _add(suite, "errors", 1)
    tree.write(file, encoding="utf-8", xml_declaration=True)


def _add(suite: ElementTree.Element, count: str, step: int) -> None:
    suite.set(count, str(int(suite.get(count, "0")) + step))


def _drop_results(case: ElementTree.Element) -> None:
    """Remove what workers passed to their controller: results.json has it."""
    properties = case.find("properties")
    for each in list(properties if properties is not None else ()):
        if each.get("name", "").startswith("attest"):
            properties.remove(each)
    if properties is not None and not len(properties):
        case.remove(properties)


def _address(test: str, prefix: str) -> tuple[str, str]:
    """ "tests/test_a.py::TestB::test_c[d]" -> ("tests.test_a.TestB", "test_c[d]"), as pytest writes
    it into the file.
    """
    head, bracket, parameters = test.partition("[")
    path, *names = head.split("::")
    parts = [prefix, path.removesuffix(".py").replace("/", "."), *names[:-1]]
    return ".".join(filter(None, parts)), names[-1] + bracket + parameters
