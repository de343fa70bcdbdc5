"""Bugs planted in the Numba kernels."""

from mutants.mutant import Mutant
from mutants.numba import backward, barriers, forward, memory

FILES = (forward, backward, memory, barriers)
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
