"""Every barrier of impls/cuda, one at a time, is not there: found in the sources, so that a new one has its mutant at once.

The tracer must see each: a barrier without which there is no race is not needed. Results are no help, as threads of a
warp mostly happen to keep in step.
"""

import re
from pathlib import Path

from mutants.cuda_tiles import ONE, TRACED, promising
from mutants.mutant import IMPLS, ROOT, Mutant

# The line of a barrier: what runs it always, or for wide heads only; its reason, behind it.
BARRIER = re.compile(
    r"^ *(?:if \((?P<wide>WIDE)\) )?(?P<call>__sync(?:threads|warp)\(\);)(?P<reason>  // (?P<story>.+))?$"
)

# Two heads where a bias is summed over them, a second tile of keys where the next one is loaded over the last.
SMALLEST = ONE | dict(nheads=2, seqlen_q=2, seqlen_k=17)
FORWARD, WIDE = promising(backward=False, cross=True), promising(headdims=range(33, 100), backward=False)
BACKWARD = promising(bias={"vector"}, bias_grad=True, cross=True)


def barriers() -> list[tuple[Path, int, re.Match]]:
    """(file, which of its barriers, its line) of each barrier, those without a reason as well."""
    files = sorted((IMPLS / "cuda").glob("*.cuh"))
    found = {path: [m for line in path.read_text().splitlines() if (m := BARRIER.match(line))] for path in files}
    return [(path, number, line) for path, lines in found.items() for number, line in enumerate(lines, 1)]


def without(path: Path, number: int, line: re.Match) -> Mutant:
    """The mutant that lacks a barrier. fa1_forward.cuh is judged as cuda_fa1; what all algorithms run, as cuda_fa2."""
    algorithm = f"cuda_{path.stem.split('_')[0]}" if path.stem.startswith("fa") else "cuda_fa2"
    promises = WIDE if line["wide"] else FORWARD if path.stem.endswith("forward") else BACKWARD
    call, reason = line["call"], line["reason"] or ""
    return Mutant(
        name=f"cuda_{path.stem}_barrier_{number}",
        law=TRACED,
        source=str(path.relative_to(ROOT)),
        impl=f"{algorithm}_wide" if line["wide"] else algorithm,
        declares=promises,
        edits=((f"{call}{reason}", f";{reason}"),),
        smallest=SMALLEST | (dict(headdim=33) if line["wide"] else {}),
        story=line["story"] or "",
    )


MUTANTS = [without(*barrier) for barrier in barriers()]
