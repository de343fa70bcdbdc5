"""Bugs planted in the CUDA kernels."""

from flash_attest.mutants.cuda import backward, barriers, example, fa1, fa2, offsets, sanitized, streams, tiles, windows
from flash_attest.mutants.mutant import Mutant

FILES = (example, barriers, tiles, fa1, fa2, backward, windows, offsets, sanitized, streams)
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
