"""Bugs planted in the Triton kernels."""

from flash_attest.mutants.mutant import Mutant
from flash_attest.mutants.triton import backward, compiled, forward, offsets, streams

FILES = (forward, backward, compiled, offsets, streams)
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
