"""The command line of the benchmark: its options, and messages about wrong values."""

from __future__ import annotations

import argparse
from pathlib import Path

from flash_attest.arguments import (
    Added,
    Parser,
    add_device,
    add_impl,
    add_impl_from,
    add_report,
    add_seed,
    listed,
    some_of,
)
from flash_attest.bench.sizes import DTYPES, PASSES, Size

SHORT = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
DESCRIPTION = "How fast implementations are, forward and backward, beside manual attention and PyTorch's kernels."
EPILOG = """\
Without options, on a GPU, two grids, both causal and full, forward and backward:
  bfloat16 and float16   torch_math, torch_sdpa_flash, torch_sdpa_cudnn, and every implementation of impls/triton that takes
                         all of it; head dims 64 and 128, seqlen 512 to 16384 at 16384 tokens and nheads * headdim = 2048
  float32                torch_math, torch_sdpa_efficient_float32, triton_fa2, cuda_fa1, cuda_fa2, numba_fa1,
                         numba_fa2; --size 16x12x64x64,8x12x1024x64, as in two teaching systems
A dtype is measured in its grid. With --headdim or --seqlen: the first grid's sizes, and its dtypes unless --dtype is given.
With --size: float32, by the implementations of the second grid, unless --dtype or --impl is given.
On a CPU: everything that runs there except simulated GPU code, at small sizes, within a minute.

  flash-attest bench --impl-from my_attention.py               yours, beside the others
  flash-attest bench --impl torch_sdpa_flash,triton_fa2        only these
  flash-attest bench --dtype bf16 --headdim 128 --seqlen 4096,16384 --causal --pass forward
  flash-attest bench --dtype fp32                              only the second grid
  flash-attest bench --size 4x16x2048x64 --impl cuda_fa2       cuda_fa2 in float32 at this size

Exit status: 0 every cell was timed or refused; 1 a cell is wrong, raised an error, or is faster than the measured peak of
matrix products, a file cannot be loaded, or no cell was timed; 2 the command is wrong; 130 interrupted, with table and plot
of what was measured.
"""


def parser_of_options() -> Parser:
    """Make the parser of every option; defaults come from the device's grid (bench/cells.py)."""
    parser = Parser("flash-attest bench", DESCRIPTION, EPILOG)
    add = parser.add_argument
    add_impl(parser, "those of the grids")
    add_impl_from(parser, "also measure the Implementation in this file")
    add_device(parser)
    add("--dtype", type=dtypes, action=Added, metavar="A,B",
        help=f"some of {','.join(DTYPES)} (or {','.join(SHORT)})")  # fmt: skip
    add("--size", type=sizes, action=Added, metavar="N,M",
        help="batch x nheads x seqlen x headdim, such as 8x12x1024x64; in float32")  # fmt: skip
    add("--headdim", type=_numbers, action=Added, metavar="N,M", help="head dims (64,128)")
    add("--seqlen", type=_numbers, action=Added, metavar="N,M",
        help="lengths (512,...,16384 on a GPU, 128,256 on a CPU)")  # fmt: skip
    add("--causal", action="store_true", help="measure only with a causal mask (both)")
    add("--full", action="store_true", help="measure only without a mask (both)")
    add("--pass", type=_passes, action=Added, dest="passes", metavar="A,B", help="forward,backward or one (both)")
    add("--seconds", type=_seconds, metavar="S", help="measuring time of one cell (0.2 on a GPU, 0.05 on a CPU)")
    add_seed(parser, "of the random inputs (0)")
    add_report(parser, "for bench.html, bench.json, bench.png (%(default)s)", Path("attest-report"))
    return parser


def parsed(arguments: list[str]) -> tuple[Parser, argparse.Namespace]:
    """Return the parser, which later errors need, and the options. Exits if the options contradict
    each other.
    """
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    options.passes = options.passes or PASSES
    other = "--headdim" if options.headdim else "--seqlen" if options.seqlen else None
    if options.size and other:
        parser.error(
            f"--size with {other}: should be one of them, as a size (batch x nheads x seqlen x headdim) has all"
        )
    return parser, options


def device_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """Return the device of --device, "cuda" or "cpu". Exits if it is a GPU and there is none.

    "cpu" hides GPUs from the process.
    """
    import torch  # takes seconds, so --help does not import it

    from flash_attest.properties.machine import gpus

    if options.device == "cpu":
        gpus.hide_gpus()  # Triton and Numba choose their device when they are imported
    available = torch.cuda.is_available()
    if options.device == "cuda" and not available:
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    return options.device if options.device != "auto" else "cuda" if available else "cpu"


def dtypes(text: str) -> tuple[str, ...]:
    """Return the dtypes of --dtype, with short names written out."""
    return some_of([SHORT.get(word, word) for word in listed(text)], DTYPES)


def _passes(text: str) -> tuple[str, ...]:
    return some_of(listed(text), PASSES)


def _numbers(text: str) -> tuple[int, ...]:
    for word in listed(text):
        if not _is_number(word):
            raise argparse.ArgumentTypeError(f"{word!r} should be a whole number, at least 1")
    return tuple(sorted({int(word) for word in listed(text)}))


def sizes(text: str) -> tuple[Size, ...]:
    """Return the sizes of --size, each written like 8x12x1024x64."""
    parsed_sizes = []
    for word in listed(text):
        numbers = word.split("x")
        if len(numbers) != len(Size._fields) or not all(map(_is_number, numbers)):
            raise argparse.ArgumentTypeError(
                f"{word!r} should be batch x nheads x seqlen x headdim, four whole numbers, such as 8x12x1024x64"
            )
        parsed_sizes.append(Size(*map(int, numbers)))
    return tuple(dict.fromkeys(parsed_sizes))


def _is_number(word: str) -> bool:
    return word.isdecimal() and int(word) >= 1


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} should be a number of seconds above 0")
    return seconds
