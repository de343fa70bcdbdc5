"""The command line: what may be asked for, and a clear word, with the value, where it may not."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.cells import PASSES
from properties.case import DTYPES

SHORT = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
DESCRIPTION = "How fast implementations are, forward and backward, beside manual attention and PyTorch's kernels."
EPILOG = """\
Without options, on a GPU: torch_math, torch_sdpa_flash, torch_sdpa_cudnn, and every triton_ and cuda_ implementation that
takes all of: bfloat16 and float16, head dims 64 and 128, causal and full, seqlen 512 to 16384 at 16384 tokens, forward and
backward.
On a CPU: everything that runs there but interpreted Triton, at small sizes, within a minute.

  python -m bench --impl-from my_attention.py               yours, beside the others
  python -m bench --impl torch_sdpa_flash,triton_fa2        these alone
  python -m bench --dtype bf16 --headdim 128 --seqlen 4096,16384 --causal --pass forward

Exit status 1: a cell is wrong, raised an error, or is faster than the measured peak of matrix products.
"""


def parser_of_options() -> argparse.ArgumentParser:
    """Every option; what is left out comes from the device's grid (bench/cells.py)."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add("--impl", metavar="A,B", help="these implementations alone (an unknown name lists the known)")
    add(
        "--impl-from",
        metavar="FILE.py[:NAME]",
        action="append",
        default=[],
        help="the Implementation in this file, too",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda if there is one")
    add("--dtype", type=_dtypes, metavar="A,B", help=f"some of {','.join(DTYPES)} (or {','.join(SHORT)})")
    add("--headdim", type=_sizes, metavar="N,M", help="64,128")
    add("--seqlen", type=_sizes, metavar="N,M", help="512,...,16384 on a GPU, 128,256 on a CPU")
    add("--causal", action="store_true", help="causal alone (both)")
    add("--full", action="store_true", help="not causal alone (both)")
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


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _dtypes(text: str) -> tuple[str, ...]:
    return _known([SHORT.get(word, word) for word in _listed(text)], tuple(DTYPES))


def _passes(text: str) -> tuple[str, ...]:
    return _known(_listed(text), PASSES)


def _known(words: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if word not in known:
            raise argparse.ArgumentTypeError(f"{word!r} should be one of {', '.join(known)}")
    return tuple(dict.fromkeys(words))


def _sizes(text: str) -> tuple[int, ...]:
    for word in _listed(text):
        if not word.isdecimal() or int(word) < 1:
            raise argparse.ArgumentTypeError(f"{word!r} should be a whole number, at least 1")
    return tuple(sorted({int(word) for word in _listed(text)}))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} should be a number of seconds above 0")
    return seconds
