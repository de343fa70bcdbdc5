"""Measures the cost of comparing launches: python -m flash_attest.bench.comparing

Every launch is compared with the first one, as in a search for races.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from flash_attest.arguments import Added, Parser, add_device, add_impl, add_impl_from
from flash_attest.bench.cells import cases, refusal
from flash_attest.bench.options import device_of, dtypes, sizes
from flash_attest.bench.plan import check_runs, from_files
from flash_attest.bench.sanity import make_inputs
from flash_attest.bench.sizes import Size
from flash_attest.impls.contract import registry
from flash_attest.impls.contract.call import run
from flash_attest.impls.contract.entry import Entry, NotLoaded, RegistryError
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs, to_layout
from flash_attest.properties.cases.case import Case
from flash_attest.races.compare import Comparison

SIZE = {"cuda": Size(4, 16, 1024, 64), "cpu": Size(1, 2, 256, 64)}
BY_DEFAULT = {"cuda": ("cuda_fa2", "triton_fa2"), "cpu": ("torch_math",)}
LAUNCHES = {"cuda": 200, "cpu": 5}  # launches between two readings of the clock
TURNS = 7  # turns of launches alone and of compared launches
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Cost:
    """Median microseconds of a launch alone, and of a launch whose outputs are compared."""

    alone: float
    compared: float

    @property
    def ratio(self) -> float:
        """The duration of a compared launch, relative to a launch alone."""
        return self.compared / self.alone

    def __str__(self) -> str:
        return f"{self.alone:6.0f} us, compared {self.ratio:.2f} times as long"


def cost(impl: Implementation, case: Case, device: str, backward: bool) -> Cost:
    """Time both kinds of launches alternately, by the host's clock.

    The figure is the host's time or the device's, whichever is longer.
    """
    inputs, launches = make_inputs(case, device, seed=0), LAUNCHES[device]
    x = Inputs(**{name: to_layout(impl, tensor).clone() for name, tensor in inputs.items()})

    def launch() -> Tensors:
        return dict(run(impl, x, causal=case.causal, backward=backward).items())

    comparison, alone, compared = Comparison(launch(), launches), [], []
    for turn in range(TURNS + 1):
        bare, watched = (_seconds(each, launches, device) for each in (_ignored(launch), _seen(launch, comparison)))
        if turn:  # the first turn compiles
            alone.append(bare)
            compared.append(watched)
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
    """Print a line for each case, implementation and pass. Returns 1 if nothing was measured."""
    parser = Parser("python -m flash_attest.bench.comparing", __doc__.partition(":")[0])
    add = parser.add_argument
    add_impl(parser, "cuda_fa2,triton_fa2; on a CPU torch_math")
    add_impl_from(parser)
    add_device(parser)
    add("--dtype", type=dtypes, action=Added, metavar="A,B", help="such as fp16,bf16 (fp16)")
    add(
        "--size",
        type=sizes,
        action=Added,
        metavar="N,M",
        help="batch x nheads x seqlen x headdim (4x16x1024x64; on a CPU 1x2x256x64)",
    )
    options = parser.parse_args(arguments)
    device = device_of(parser, options)
    try:
        entries = _entries(options, device)
    except NotLoaded as error:
        parser.fail(str(error))
    except RegistryError as error:
        parser.error(str(error))
    measured = 0
    for case in cases(options.dtype or ("float16",), options.size or (SIZE[device],), (False,)):
        for impl in (entry.impl for entry in registry.on_device(entries, device)):
            for which in ("forward", "backward") if impl.backward else ("forward",):
                result = _measured(impl, case, device, which)
                measured += isinstance(result, Cost)
                passes = "forward and backward" if which == "backward" else "forward"
                print(f"{impl.name:20} {passes:20} {result}  ({case})", flush=True)
    return 0 if measured else 1


def _entries(options: argparse.Namespace, device: str) -> list[Entry]:
    mine = from_files(options.impl_from)
    names = options.impl if options.impl is not None or mine else ",".join(BY_DEFAULT[device])
    entries = mine if names is None else registry.choose(mine, names, alone=True)
    for entry in entries:
        check_runs(entry, device)
    return entries


def _measured(impl: Implementation, case: Case, device: str, which: str) -> Cost | str:
    """Return the cost, or why there is none."""
    if reason := refusal(impl, case, which):
        return f"refused: {reason}"
    try:
        return cost(impl, case, device, which == "backward")
    except torch.OutOfMemoryError:
        return "does not fit into memory"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
