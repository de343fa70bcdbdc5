"""Bugs planted in implementations that consist of tensor operations."""

from flash_attest.mutants.mutant import Mutant
from flash_attest.mutants.tiled import backward, boundaries, calling, lengths, masks, memory, races, softmax

FILES = (backward, boundaries, calling, lengths, masks, memory, races, softmax)
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
