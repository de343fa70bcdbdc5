"""Every barrier of impls/cuda, removed one at a time.

Barriers are found in the sources, so a new barrier gets its mutant at once. The tracer must catch
each mutant, because a barrier whose removal causes no race is not needed. Results are not enough,
because threads of a warp mostly run in step.
"""

import re
from pathlib import Path

from flash_attest.mutants.cuda.build import FORWARD, KERNELS, supporting
from flash_attest.mutants.mutant import ONE, TRACED, Mutant

# The line of a barrier, which is executed always, or for wide heads only. The reason follows it.
BARRIER = re.compile(
    r"^ *(?:if \((?P<wide>WIDE)\) )?(?P<call>__sync(?:threads|warp)\(\);)(?P<reason>  // (?P<story>.+))?$"
)

# Use two heads or batches if a bias is summed over them, and a second key tile if the next tile is
# loaded over the previous one.
SMALLEST = ONE | dict(batch=2, nheads=2, seqlen_q=2, seqlen_k=17)
WIDE = supporting(headdims=range(33, 100), backward=False)
BACKWARD = supporting(bias={"vector"}, bias_grad=True, cross=True)

# File -> the implementation that is judged, and the fields of its contract. A file that all
# algorithms share is judged through cuda_fa2.
JUDGED_AS = {
    "backward.cuh": ("cuda_fa2", BACKWARD),
    "bias_gradient.cuh": ("cuda_fa2", BACKWARD),
    "fa1_forward.cuh": ("cuda_fa1", FORWARD),
    "fa2_forward.cuh": ("cuda_fa2", FORWARD),
}
SHARED = ("cuda_fa2", BACKWARD)


def barriers() -> list[tuple[Path, int, re.Match]]:
    """Return (file, number of the barrier in it, its line) of each barrier, including those without
    a reason.
    """
    files = sorted(KERNELS.folder.glob("*.cuh"))
    matches = {path: [m for line in path.read_text().splitlines() if (m := BARRIER.match(line))] for path in files}
    return [(path, number, line) for path, lines in matches.items() for number, line in enumerate(lines, 1)]


def without(path: Path, number: int, line: re.Match) -> Mutant:
    """Return the mutant that lacks one barrier."""
    impl, declares = JUDGED_AS.get(path.name, SHARED)
    if line["wide"]:
        impl, declares = f"{impl}_wide", WIDE
    call, reason = line["call"], line["reason"] or ""
    return Mutant(
        name=f"cuda_{path.stem}_barrier_{number}",
        law=TRACED,
        family=KERNELS,
        source=path.name,
        impl=impl,
        declares=declares,
        edits=((f"{call}{reason}", f";{reason}"),),
        smallest=SMALLEST | (dict(headdim=33) if line["wide"] else {}),
        story=line["story"] or "",
    )


MUTANTS = [without(*barrier) for barrier in barriers()]
