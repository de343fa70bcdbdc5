"""Bugs planted in the CUDA kernels."""

from mutants.cuda import backward, barriers, example, fa1, fa2, offsets, streams, tiles
from mutants.mutant import Mutant

FILES = (example, barriers, tiles, fa1, fa2, backward, offsets, streams)
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
