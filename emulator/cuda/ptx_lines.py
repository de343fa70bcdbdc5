"""Source lines in the PTX that nvcc makes of a .cu file. Lines of CUDA's own headers are replaced
by the author's lines.
"""

from __future__ import annotations

import re
from pathlib import Path

LOC = re.compile(r"^(\s*\.loc\s+)(\d+) (\d+) (\d+)(?:, function_name \S+, inlined_at (\d+) (\d+) (\d+))?")
FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)


def with_own_lines(text: str, toolkit: Path) -> str:
    """Return the PTX, with each line of a toolkit header replaced by the author's line that calls
    it.

    `.loc 2 151 3, function_name $L__info_string0, inlined_at 1 6 5` is line 151 of file 2, in a
    function that line 6 of file 1 calls; if that line is in an inlined function too, an earlier
    .loc says so. No line of the text moves.
    """
    foreign = {number for number, name in FILE.findall(text) if Path(name).resolve().is_relative_to(toolkit)}
    callers: dict[tuple[str, ...], tuple[str, ...]] = {}
    lines = text.split("\n")
    for n, line in enumerate(lines):
        if not (match := LOC.match(line)):
            continue
        place, caller = match.group(2, 3, 4), match.group(5, 6, 7)
        if caller[0]:
            callers[place] = caller
        else:
            callers.pop(place, None)
        seen = set()
        while place[0] in foreign and place in callers and place not in seen:
            seen.add(place)
            place = callers[place]
        lines[n] = f"{match[1]}{' '.join(place)}"
    return "\n".join(lines)
