"""python -m bench.comparing: what it costs to compare every launch with the first one, as a ratio to bare launches."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bench.cells import Size, cases
from bench.options import dtypes, sizes
from bench.plan import check_runs
from bench.sanity import make_inputs
from impls import registry
from impls.call import Inputs, run, to_layout
from impls.contract import Implementation
from properties.cases.case import Case
from races.compare import Comparison

SIZE = {"cuda": Size(4, 16, 1024, 64), "cpu": Size(1, 2, 256, 64)}
LAUNCHES = {"cuda": 200, "cpu": 5}  # between two readings of the clock, after which the device is waited for
TURNS = 7  # of launches alone, and of launches that are compared
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Cost:
    """Microseconds of a launch alone, and of one whose outputs are compared with those of the first: medians of turns."""

    alone: float
    compared: float

    @property
    def ratio(self) -> float:
        """How many times as long a compared launch takes."""
        return self.compared / self.alone


def cost(impl: Implementation, case: Case, device: str, backward: bool) -> Cost:
    """Measure in turns, by the clock of the host: what bounds a launch, the host or the device, bounds the figure, too."""
    given, launches = make_inputs(case, device, seed=0), LAUNCHES[device]
    x = Inputs(**{name: to_layout(impl, tensor).clone() for name, tensor in given.items()})

    def launch() -> Tensors:
        return dict(run(impl, x, causal=case.causal, backward=backward).items())

    comparison, alone, compared = Comparison(launch(), launches), [], []
    for turn in range(TURNS + 1):
        bare, seen = (_seconds(each, launches, device) for each in (_ignored(launch), _seen(launch, comparison)))
        if turn:  # the first turn compiles
            alone.append(bare)
            compared.append(seen)
    return Cost(*(1e6 * statistics.median(each) / launches for each in (alone, compared)))


def _ignored(launch: Callable[[], Tensors]) -> Callable[[int], None]:
    def call(repeat: int) -> None:
        launch()

    return call


def _seen(launch: Callable[[], Tensors], comparison: Comparison) -> Callable[[int], None]:
    return lambda repeat: comparison.see(repeat, launch())


def _seconds(call: Callable[[int], None], n: int, device: str) -> float:
    began = time.perf_counter()
    for repeat in range(n):
        call(repeat)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main(arguments: list[str]) -> int:
    """Print a line for each implementation and pass."""
    parser = argparse.ArgumentParser(prog="python -m bench.comparing", description=__doc__.partition(": ")[2])
    add = parser.add_argument
    add("--impl", metavar="A,B", help="only these implementations (cuda_fa2,triton_fa2; on a CPU torch_math)")
    add("--impl-from", metavar="FILE.py[:NAME]", help="the Implementation in this file")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda if there is one")
    add("--dtype", type=dtypes, default=("float16",), help="such as bf16 (float16)")
    add("--size", type=sizes, help="batch x nheads x seqlen x headdim (4x16x1024x64; on a CPU 1x2x256x64)")
    options = parser.parse_args(arguments)
    there = torch.cuda.is_available()
    if options.device == "cuda" and not there:
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    device = options.device if options.device != "auto" else "cuda" if there else "cpu"
    names = options.impl or (None if options.impl_from else "cuda_fa2,triton_fa2" if device == "cuda" else "torch_math")
    try:
        mine = registry.from_file(options.impl_from) if options.impl_from else []
        entries = registry.select(registry.ours() + mine, names) if names else mine
        for entry in entries:
            check_runs(entry, device)
    except registry.RegistryError as error:
        parser.error(str(error))
    for case in cases(options.dtype, options.size or (SIZE[device],), (False,)):
        for impl in (entry.impl for entry in entries):
            for backward in (False, True)[: 1 + (impl.backward is not None)]:
                found, which = cost(impl, case, device, backward), "forward and backward" if backward else "forward"
                print(f"{impl.name:20} {which:20} {found.alone:6.0f} us, compared {found.ratio:.2f} times as long  ({case})",
                      flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
