"""Bugs planted in the Numba kernels."""

from flash_attest.mutants.mutant import Mutant
from flash_attest.mutants.numba import backward, barriers, forward, memory, windows

FILES = (forward, backward, memory, windows, barriers)
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
