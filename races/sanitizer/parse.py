"""Reads the logs of compute-sanitizer.

A report begins in the first column after "========="; its other lines are indented. Newer and older
versions give its location in different orders: "kernel(int *)+0x90 in file.cu:13", "0x90 in
file.cu:13:kernel(int*)". Without -lineinfo there is no file.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from flash_attest.emulator.observation import STATIC_SHARED, Action, Kind, Side, Site, Space
from flash_attest.races.finding import Finding, Layer, merge
from flash_attest.races.sanitizer.kernels import identifier, of_pytorch
from flash_attest.races.sanitizer.tools import Tool

PREFIX = "========="
SUMMARY = re.compile(r"SUMMARY: (\d+) (?:error|hazard)s?\b(?! were not printed)")
NOT_PRINTED = re.compile(r"SUMMARY: (?P<number>\d+) (?:error|hazard)s? were not printed")
RACE = re.compile(
    r"(?:(?P<severity>\w+): )?Race reported between (?P<what>\w+) access at (?P<where>.+)$", re.IGNORECASE
)
AND = re.compile(r"and (?P<what>\w+) access at (?P<where>.+?)(?: \[(?P<count>\d+) hazards?\])?$")
INVALID = re.compile(r"Invalid __(?P<space>\w+)__ (?P<what>\w+) of size (?P<size>[\d,]+) bytes")
BARRIER = re.compile(r"Barrier error detected\.\s*(?P<words>.*)")
OF_HOST = re.compile(
    r"COMPUTE-SANITIZER|Program hit |Target application returned|Leaked |LEAK SUMMARY"
)  # these are not about a kernel
AT = re.compile(r"at (?P<where>.+)$")
BY = re.compile(r"by thread \((?P<thread>[\d, ]+)\) in block \((?P<block>[\d, ]+)\)")
NEWER = re.compile(r"(?P<function>.+)\+(?P<offset>0x[0-9a-f]+)(?: in (?P<file>.+):(?P<line>\d+))?$")
OLDER = re.compile(r"(?P<offset>0x[0-9a-f]+) in (?:(?P<file>.+?):(?P<line>\d+):)?(?P<function>.+)$")
ADDRESS = re.compile(r" ?(?:at |to )?0x[0-9a-f]+")  # addresses differ in each run
SPACES = {"global": Space.GLOBAL, "shared": Space.SHARED, "local": Space.LOCAL}


@dataclass
class Report:
    """The findings of a tool, and whether it finished.

    reported: the number in its summary; None if there is no summary, for example if the program or
    the tool was ended.
    left_out: reports about other kernels or about calls of the host.
    unprinted: reports that the tool only counted.
    unread: reports that could not be parsed.
    complaints: messages of the tool about itself, such as "Error: Device not supported".
    """

    findings: list[Finding] = field(default_factory=list)
    reported: int | None = None
    left_out: int = 0
    unprinted: int = 0
    unread: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def parse(text: str, tool: Tool) -> Report:
    """Return the report of a tool's log, with one finding for each kind and pair of lines."""
    report = Report()
    for lines in _blocks(text):
        first = lines[0]
        if numbers := [int(n) for n in SUMMARY.findall(first)]:
            report.reported = (report.reported or 0) + numbers[0]
        elif unprinted := NOT_PRINTED.search(first):
            report.unprinted += int(unprinted["number"])
        elif OF_HOST.match(first):
            report.left_out += 1 if first.startswith("Program hit") else 0
        elif findings := _findings(lines, tool):
            others = [finding for finding in findings if any(of_pytorch(site.function) for site in finding.sites)]
            report.left_out += len(others)
            merge(report.findings, (finding for finding in findings if finding not in others))
        else:
            report.complaints.append(first)
    if report.reported and not report.findings and (report.complaints or not report.left_out):
        report.unread.append(report.complaints[0] if report.complaints else f"{report.reported} reports")
    if report.unprinted:
        more = f", which did not print {report.unprinted} more"
        report.findings = [replace(finding, detail=finding.detail + more) for finding in report.findings]
    return report


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the reports, each as its lines without the prefix.

    The program's own output is left out.
    """
    block: list[str] = []
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        rest = line[len(PREFIX) :].rstrip()
        if block and (not rest or not rest.startswith("  ")):
            yield block
            block = []
        if rest:
            block.append(rest.strip())
    if block:
        yield block


def _findings(lines: list[str], tool: Tool) -> list[Finding]:
    first, rest = lines[0], lines[1:]
    if race := RACE.match(first):
        return list(_races(race, rest, tool))
    at = next((match["where"] for line in rest if (match := AT.match(line))), "")
    by = next((match for line in rest if (match := BY.match(line))), None)
    if not at:
        return []
    indices = [tuple(int(n) for n in by[name].split(",")) for name in ("thread", "block")] if by else [None, None]
    if invalid := INVALID.match(first):
        kind, detail = _of_access(invalid, rest)
        space, action = SPACES.get(invalid["space"], Space.NONE), _action(invalid["what"])
    elif barrier := BARRIER.match(first):
        kind, detail, space, action = Kind.BARRIER, barrier["words"] or first, Space.NONE, Action.WAIT
    else:
        kind, detail, space, action = Kind.TRAP, ADDRESS.sub("", first), Space.NONE, Action.TOUCH
    frames = [f"in {line.partition(':')[2].strip()}" for line in rest if line.startswith("Device Frame")]
    detail = "\n".join([detail.rstrip("."), *frames, f"reported by {tool.value}"])
    return [Finding(kind, space, "", None, Side(action, _site(at), *indices), detail=detail, layer=Layer.SANITIZER)]


def _races(race: re.Match, rest: list[str], tool: Tool) -> Iterator[Finding]:
    """Yield a finding for each access that the report pairs with its first one."""
    one = Side(_action(race["what"]), _site(race["where"]), None, None)
    severity = (race["severity"] or "error").lower()
    for line in rest:
        if other := AND.match(line):
            two = Side(_action(other["what"]), _site(other["where"]), None, None)
            detail = f"\nreported by {tool.value} ({severity})"
            count = int(other["count"] or 1)
            yield Finding(
                Kind.RACE, Space.SHARED, STATIC_SHARED, None, one, two, None, count, detail, layer=Layer.SANITIZER
            )


def _of_access(invalid: re.Match, rest: list[str]) -> tuple[Kind, str]:
    """Return the kind and the description of an invalid access."""
    lines = [ADDRESS.sub("", line) for line in rest if line.startswith(("Access", "Address", "and is"))]
    words = " ".join(re.sub("^(?:Access|Address)(?: to)? *", "", line) for line in lines)
    kind = Kind.MISALIGNED if "misaligned" in words else Kind.OUTSIDE
    return kind, f"{invalid['what']} of {invalid['size']} bytes in {invalid['space']} memory, which {words}"


def _action(word: str) -> Action:
    """Return the action for "Read", "write", "Atomic"; TOUCH for any other word."""
    return next((action for action in Action if action.value == word.lower()), Action.TOUCH)


def _site(where: str) -> Site:
    """Return a source location; without a line, the function and the offset of the instruction."""
    match = NEWER.match(where) or OLDER.match(where)
    if match is None:
        return Site(where, 0)
    function, line = match["function"], int(match["line"] or 0)
    if not line:
        return Site(f"{identifier(function)}+{match['offset']}", 0, function)
    return Site(match["file"], line, function, linecache.getline(match["file"], line).strip())
