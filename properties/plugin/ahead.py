"""Compiles on cores that no worker needs: kernels that laws will ask for, before they do.

    python -m properties.plugin.ahead OWNER DONE PART PARTS NAME...

calls the named implementations once for each kind of case, on a GPU. What Triton and Numba compile for that stays on disk,
where workers find it; nothing is judged. OWNER is the number of the process of the run, with which this one ends. DONE is a
file that is there when all calls were made, so that the next run makes none.

A run of everything would otherwise wait for the one worker that compiles a hundred kernels of triton_fa2, one after another.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import product, zip_longest
from pathlib import Path

from emulator.build_cache import cache_folder, key_of
from emulator.errors import EmulatorError
from impls.contract import Implementation
from impls.registry import ours
from properties.cases.case import Case
from properties.cases.support import unsupported
from properties.failures import LawBroken, Undecided
from properties.judging.alone import end_with
from properties.plugin.process import prepare, prepare_to_fork
from properties.trial import Trial

ROOT = Path(__file__).parents[2]
# Packages with many kernels, each compiled when a call first needs it, by one process (process.py), and kept for all.
PACKAGES = ("impls.triton", "impls.numba")
FEWEST_LAWS = 40  # of a run, below which it is over before this helps
SEQLEN = 16


def compiled_one_by_one(impl: object) -> bool:
    """Whether an implementation is of a package whose kernels several processes can compile at once."""
    return getattr(getattr(impl, "forward", None), "__module__", "").startswith(PACKAGES)


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


def start(names: Iterable[str], workers: int, compiled_of: str) -> list[subprocess.Popen]:
    """Processes that call these implementations: one for each core to spare, but no more than there are workers.

    compiled_of: what kernels are compiled of and for, as text. A part of which nothing has changed is left out.
    """
    names = list(names)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parts = min(cores - workers, workers) if names else 0
    try:
        done = [cache_folder() / f"ahead-{key_of(compiled_of, f'{part}/{parts}', *names)}" for part in range(parts)]
    except EmulatorError:  # nothing can be kept on disk
        return []
    return [
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), str(done[part]), str(part), str(parts), *names],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the run, which ends them
        )
        for part in range(parts)
        if not done[part].exists()
    ]


def end(processes: Iterable[subprocess.Popen]) -> None:
    """End those that still run."""
    for process in processes:
        process.kill()
        process.wait()


def main(arguments: list[str]) -> int:
    owner, done, part, parts, *names = arguments
    end_with(int(owner))
    by_name = {entry.name: entry.impl for entry in ours()}
    prepare_to_fork()  # keeps kernels where workers do
    prepare("cuda", is_worker=True)
    call_each(part_of([by_name[name] for name in names], int(part), int(parts)), "cuda")
    Path(done).touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
