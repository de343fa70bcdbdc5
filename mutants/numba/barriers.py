"""Every barrier of impls/numba, removed one at a time.

Barriers are found in the sources, so a new barrier gets its mutant at once. The tracer must catch
each mutant, because a barrier whose removal causes no race is not needed.
tests/emulator/numba/test_barriers.py removes the barriers of matmul.py, which no law judges.
"""

import re
from pathlib import Path

from flash_attest.mutants.mutant import TRACED, Mutant
from flash_attest.mutants.numba.build import FORWARD, NUMBA, planted, supporting

# The line of a barrier. The reason follows it.
BARRIER = re.compile(r"^ *(?P<call>cuda\.sync(?:threads|warp)\(\))(?P<reason>  # (?P<story>.+))?$")

# Use two heads if a bias is summed over them, and a second key tile if the next tile is loaded over
# the previous one.
SMALLEST = dict(nheads=2, seqlen_q=2, seqlen_k=33)
BACKWARD = supporting(bias={"vector"}, bias_grad=True, cross=True)

# File -> the implementation that is judged, and the fields of its contract. A file that all
# algorithms share is judged through numba_fa2.
JUDGED_AS = {
    "fa1.py": ("numba_fa1", FORWARD),
    "fa2.py": ("numba_fa2", FORWARD),
}
SHARED = ("numba_fa2", BACKWARD)
# A vector is also summed over tiles of queries, which have 16 queries each in the emulator.
LARGER = {"bias_gradient.py": dict(seqlen_q=17)}


def barriers() -> list[tuple[Path, int, re.Match]]:
    """Return (file, number of the barrier in it, its line) of each barrier, including those without
    a reason.
    """
    files = sorted(NUMBA.folder.glob("*.py"))
    matches = {path: [m for line in path.read_text().splitlines() if (m := BARRIER.match(line))] for path in files}
    return [(path, number, line) for path, lines in matches.items() for number, line in enumerate(lines, 1)]


def without(path: Path, number: int, line: re.Match) -> Mutant:
    """Return the mutant that lacks one barrier."""
    impl, declares = JUDGED_AS.get(path.name, SHARED)
    call, reason = line["call"], line["reason"] or ""
    return planted(
        name=f"{path.stem}_barrier_{number}",
        law=TRACED,
        source=path.name,
        impl=impl,
        declares=declares,
        edits=((f"{call}{reason}", f"pass{reason}"),),
        smallest=SMALLEST | LARGER.get(path.name, {}),
        story=line["story"] or "",
    )


MUTANTS = [without(*barrier) for barrier in barriers() if barrier[0].name != "matmul.py"]
