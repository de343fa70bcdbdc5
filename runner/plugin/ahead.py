"""Compiles kernels beside the workers, before laws ask for them.

    python -m flash_attest.runner.plugin.ahead OWNER SEED NAME... < SHARED

Each such process calls the named implementations on small cases of every kind, on a GPU. Triton and
Numba keep the compiled kernels on disk, where workers find them; nothing is judged. OWNER is the
process number of the run, and the process ends with the run. SEED is the seed of the run, or "all"
if cases of every kind are drawn (properties/cases/kinds.py). Several such processes share one open
file, whose offset counts the kinds of cases already taken.

A full run would otherwise wait for the one worker that compiles a hundred kernels of triton_fa2,
one after another.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product, takewhile, zip_longest

from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.registry import ours
from flash_attest.places import IMPORTED_FROM
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.kinds import has_kind
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import LawBroken, Undecided
from flash_attest.properties.machine.gpus import cores, visible_gpus
from flash_attest.properties.trial import Trial
from flash_attest.runner.alone import end_with
from flash_attest.runner.plugin.process import prepare, prepare_to_fork

# Name prefixes of implementations with many kernels. Each kernel is compiled by one process when a
# call first needs it (process.py), and kept for all processes.
COMPILED_ONE_BY_ONE = ("triton_", "numba_")
FEWEST_LAWS = 40  # laws of these implementations in a run; a smaller run is over before this helps
MOST = 8  # processes; each takes GPU memory and imports what it calls
SEQLEN = 16
STDIN = 0


def kinds(impl: Implementation) -> Iterator[list[Case]]:
    """Yield small cases with every dtype, tile, kind of bias and feature that kernels have.

    Common head dims come first. Cases of one list share kernels. Tiles depend on the head dim
    padded to a power of two, and wide loads on whether the head dim is a power of two.
    """
    s, powers = impl.supports, {2**n for n in range(11)}
    headdims = [d for d in s.headdim_list if d in powers or d + 1 in powers] or s.headdim_list[-1:]
    for headdim, dtype in product(sorted(headdims, key=lambda d: abs(math.log(d / 64))), sorted(s.dtypes, key=str)):
        case = Case(1, SEQLEN, SEQLEN, 1, 1, headdim, dtype, causal=s.causal == "always")
        yield [case]
        for bias_dtype in dict.fromkeys((case.bias_dtype, dtype)):
            yield [case.but(bias=kind, bias_dtype=bias_dtype) for kind in s.bias_kinds]
        for feature in FEATURES.values():
            if feature.alone and feature.name != "headdim_v":
                yield [feature.changed(case, feature.tried[0])]
        yield [case.but(headdim_v=dv) for d, dv in sorted(s.headdims_v) if d == headdim]


def calls(impls: Iterable[Implementation], seed: int | None = None) -> list[list[tuple[Implementation, Case]]]:
    """Return the calls to make, starting with the common kinds of every implementation.

    One process makes all calls of an inner list. seed: of a run that has few kinds.
    """

    def is_called(impl: Implementation, case: Case) -> bool:
        drawn = seed is None or not impl.compiles or has_kind(impl, seed, case)
        return drawn and not unsupported(impl, case)

    by_impl = [[[(impl, case) for case in cases if is_called(impl, case)] for cases in kinds(impl)] for impl in impls]
    return [each for at_once in zip_longest(*by_impl) for each in at_once if each]


def numbers(descriptor: int) -> Iterator[int]:
    """Yield 0, 1, 2, ...: each number goes to one of the processes that share this open file.

    The shared offset of the file is the counter.
    """
    while True:
        yield os.lseek(descriptor, 1, os.SEEK_CUR) - 1


def call_each(pairs: Iterable[tuple[Implementation, Case]], device: str) -> None:
    """Call implementations on cases. Errors are ignored here, because the laws will report them."""
    for impl, case in pairs:
        trial = Trial(impl, case, device, judges_state=False)
        try:
            trial.run(backward=trial.backward)
        except (LawBroken, Undecided):
            if not trial.caller.device_works():
                return


def start(laws_of: Iterable[str], workers: int, seed: int | None = None) -> list[subprocess.Popen]:
    """Start processes that call implementations, while the workers wait.

    There is one process for two cores, but no more processes than workers. laws_of: for each law to
    be judged, the name of its implementation. seed: of a run that has few kinds.
    """
    judged = [name for name in laws_of if name.startswith(COMPILED_ONE_BY_ONE)]
    parts = min(cores() // 2, workers, MOST) if len(judged) >= FEWEST_LAWS else 0
    names, gpus, processes = list(dict.fromkeys(judged)), visible_gpus(), []
    with (
        suppress(OSError),
        tempfile.TemporaryFile() as shared,
    ):  # for example too many processes; then only the workers compile
        for part in range(parts):
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", __name__, str(os.getpid()), "all" if seed is None else str(seed), *names],
                    cwd=IMPORTED_FROM,
                    env={**os.environ, **({"CUDA_VISIBLE_DEVICES": gpus[part % len(gpus)]} if gpus else {})},
                    stdin=shared,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # so that its compilers end with it
                )
            )
    return processes


def main(arguments: list[str]) -> int:
    """Call every kind of case that no other process has taken. Returns the exit status."""
    owner, seed, *names = arguments
    end_with(int(owner))
    impls = [entry.impl for entry in ours(names) if entry.name in names and isinstance(entry.impl, Implementation)]
    prepare_to_fork()  # uses the workers' kernel cache
    prepare("cuda", is_worker=True)
    every = calls(impls, None if seed == "all" else int(seed))
    taken = takewhile(lambda n: n < len(every), numbers(STDIN))
    call_each((pair for n in taken for pair in every[n]), "cuda")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
