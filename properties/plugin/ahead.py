"""Compiles beside the workers: kernels that laws will ask for, before they do.

    python -m properties.plugin.ahead OWNER PART PARTS NAME...

calls the named implementations once for each kind of case, on a GPU. What Triton and Numba compile for that stays on disk,
where workers find it; nothing is judged. OWNER is the number of the process of the run, with which this one ends.

A run of everything would otherwise wait for the one worker that compiles a hundred kernels of triton_fa2, one after another.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product, zip_longest
from pathlib import Path

from impls.contract import Implementation
from impls.registry import ours
from properties.cases.case import Case
from properties.cases.support import unsupported
from properties.failures import LawBroken, Undecided
from properties.gpus import cores, visible_gpus
from properties.judging.alone import end_with
from properties.plugin.process import prepare, prepare_to_fork
from properties.trial import Trial

ROOT = Path(__file__).parents[2]
# How the names of implementations begin that have many kernels, each compiled when a call first needs it, by one process
# (process.py), and kept for all.
COMPILED_ONE_BY_ONE = ("triton_", "numba_")
FEWEST_LAWS = 40  # of these implementations in a run, below which it is over before this helps
MOST = 8  # processes: each takes memory of a GPU, and imports what it calls
SEQLEN = 16


def kinds(impl: Implementation) -> list[list[Case]]:
    """Small cases with every dtype, tile and kind of bias: what kernels are compiled for. A list for each dtype and tile.

    Tiles depend on the head dim padded to a power of two, wide loads on whether it is one. Common head dims come first.
    """
    s, powers = impl.supports, {2**n for n in range(11)}
    headdims = [d for d in s.headdim_list if d in powers or d + 1 in powers] or s.headdim_list[-1:]
    groups = []
    for headdim, dtype in product(sorted(headdims, key=lambda d: abs(math.log(d / 64))), sorted(s.dtypes, key=str)):
        case = Case(1, SEQLEN, SEQLEN, 1, 1, headdim, dtype, causal=s.causal == "always")
        biases = product(s.bias_kinds, dict.fromkeys((case.bias_dtype, dtype)))
        groups.append([case, *(case.but(bias=kind, bias_dtype=of) for kind, of in biases)])
    return groups


def part_of(impls: Iterable[Implementation], part: int, parts: int) -> Iterator[tuple[Implementation, Case]]:
    """What one of so many processes calls: every implementation's common kinds, then the others."""
    by_impl = [[(impl, group) for group in kinds(impl)] for impl in impls]
    in_turn = [each for at_once in zip_longest(*by_impl) for each in at_once if each]
    for impl, group in in_turn[part::parts]:
        yield from ((impl, case) for case in group if not unsupported(impl, case))


def call_each(calls: Iterable[tuple[Implementation, Case]], device: str) -> None:
    """Call implementations on cases. What goes wrong here, laws will see."""
    for impl, case in calls:
        trial = Trial(impl, case, device, judges_state=False)
        try:
            trial.run(backward=trial.backward)
        except (LawBroken, Undecided):
            if not trial.device_works():
                return


def start(laws_of: Iterable[str], workers: int) -> list[subprocess.Popen]:
    """Processes that call implementations, one for two cores, but no more than there are workers, which wait meanwhile.

    laws_of: the name of the implementation of each law that is to be judged.
    """
    judged = [name for name in laws_of if name.startswith(COMPILED_ONE_BY_ONE)]
    parts = min(cores() // 2, workers, MOST) if len(judged) >= FEWEST_LAWS else 0
    names, gpus, made = list(dict.fromkeys(judged)), visible_gpus(), []
    with suppress(OSError):  # too many processes, say: then workers compile alone
        for part in range(parts):
            made.append(
                subprocess.Popen(
                    [sys.executable, "-m", __name__, str(os.getpid()), str(part), str(parts), *names],
                    cwd=ROOT,
                    env={**os.environ, **({"CUDA_VISIBLE_DEVICES": gpus[part % len(gpus)]} if gpus else {})},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # so that it is ended with its compilers
                )
            )
    return made


def main(arguments: list[str]) -> int:
    owner, part, parts, *names = arguments
    end_with(int(owner))
    impls = [entry.impl for entry in ours(names) if entry.name in names and isinstance(entry.impl, Implementation)]
    prepare_to_fork()  # keeps kernels where workers do
    prepare("cuda", is_worker=True)
    call_each(part_of(impls, int(part), int(parts)), "cuda")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
