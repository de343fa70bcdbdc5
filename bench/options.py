"""The command line: the options, and an error message with the value for what is not allowed."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from flash_attest.bench.cells import PASSES, Size
from flash_attest.properties.cases.case import DTYPES
from flash_attest.properties.machine import gpus

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

Exit status 1: a cell is wrong, raised an error, or is faster than the measured peak of matrix products.
"""


def parser_of_options() -> argparse.ArgumentParser:
    """Every option; defaults come from the device's grid (bench/cells.py)."""
    parser = argparse.ArgumentParser(prog="flash-attest bench", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add("--impl", metavar="A,B", help="only these implementations (an unknown name lists the known ones)")
    add(
        "--impl-from",
        metavar="FILE.py[:NAME]",
        action="append",
        default=[],
        help="also the Implementation in this file",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda if there is one")
    add("--dtype", type=dtypes, metavar="A,B", help=f"some of {','.join(DTYPES)} (or {','.join(SHORT)})")
    add("--size", type=sizes, metavar="N,M", help="batch x nheads x seqlen x headdim, such as 8x12x1024x64; in float32")
    add("--headdim", type=_numbers, metavar="N,M", help="64,128")
    add("--seqlen", type=_numbers, metavar="N,M", help="512,...,16384 on a GPU, 128,256 on a CPU")
    add("--causal", action="store_true", help="only causal (both)")
    add("--full", action="store_true", help="only not causal (both)")
    add("--pass", type=_passes, default=PASSES, dest="passes", metavar="A,B", help="forward,backward")
    add("--seconds", type=_seconds, metavar="S", help="measuring time of one cell (0.2 on a GPU, 0.05 on a CPU)")
    add("--seed", type=int, default=0, help="of the random inputs (0)")
    add(
        "--report",
        type=Path,
        default=Path("attest-report"),
        metavar="DIR",
        help="for bench.json, bench.png (%(default)s)",
    )
    return parser


def parsed(arguments: list[str]) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """The options, and the parser for errors that are found later. Exits with a message if options contradict each other."""
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    other = "--headdim" if options.headdim else "--seqlen" if options.seqlen else None
    if options.size and other:
        parser.error(
            f"--size with {other}: should be one of them, as a size (batch x nheads x seqlen x headdim) has all"
        )
    options.device = device_of(parser, options)
    return parser, options


def device_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """As --device says: "cuda" or "cpu", which hides GPUs. Exits with a message without a GPU that is asked for."""
    if options.device == "cpu":
        gpus.hide_gpus()  # before kernels in Triton and Numba are imported, which choose their device then
    there = torch.cuda.is_available()
    if options.device == "cuda" and not there:
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    return options.device if options.device != "auto" else "cuda" if there else "cpu"


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def dtypes(text: str) -> tuple[str, ...]:
    """The names of --dtype, long ones for short."""
    return _known([SHORT.get(word, word) for word in _listed(text)], tuple(DTYPES))


def _passes(text: str) -> tuple[str, ...]:
    return _known(_listed(text), PASSES)


def _known(words: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if word not in known:
            raise argparse.ArgumentTypeError(f"{word!r} should be one of {', '.join(known)}")
    return tuple(dict.fromkeys(words))


def _numbers(text: str) -> tuple[int, ...]:
    for word in _listed(text):
        if not _is_number(word):
            raise argparse.ArgumentTypeError(f"{word!r} should be a whole number, at least 1")
    return tuple(sorted({int(word) for word in _listed(text)}))


def sizes(text: str) -> tuple[Size, ...]:
    """Those of --size: 8x12x1024x64."""
    found = []
    for word in _listed(text):
        numbers = word.split("x")
        if len(numbers) != len(Size._fields) or not all(map(_is_number, numbers)):
            raise argparse.ArgumentTypeError(
                f"{word!r} should be batch x nheads x seqlen x headdim, four whole numbers, such as 8x12x1024x64"
            )
        found.append(Size(*map(int, numbers)))
    return tuple(dict.fromkeys(found))


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
