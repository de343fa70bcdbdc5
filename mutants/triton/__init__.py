"""Bugs planted in the Triton kernels."""

from mutants.mutant import Mutant
from mutants.triton import backward, compiled, forward, offsets, streams

FILES = (forward, backward, compiled, offsets, streams)
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
