"""Bugs planted in implementations that consist of tensor operations."""

from flash_attest.mutants.mutant import Mutant
from flash_attest.mutants.tiled import (
    backward,
    boundaries,
    calling,
    inputs,
    lengths,
    masks,
    memory,
    races,
    shapes,
    softmax,
)

FILES = (backward, boundaries, calling, inputs, lengths, masks, memory, races, shapes, softmax)
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
