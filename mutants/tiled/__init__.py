"""Bugs planted in implementations that consist of tensor operations."""

from flash_attest.mutants.mutant import Mutant
from flash_attest.mutants.tiled import (
    backward,
    boundaries,
    calling,
    forms,
    hidden,
    inputs,
    invariance,
    lengths,
    lse_gradients,
    masks,
    memory,
    races,
    shapes,
    shared_kv,
    sinks,
    softcap,
    softmax,
    values,
    windows,
)

FILES = (
    backward,
    boundaries,
    calling,
    forms,
    hidden,
    inputs,
    invariance,
    lengths,
    lse_gradients,
    masks,
    memory,
    races,
    shapes,
    shared_kv,
    sinks,
    softcap,
    softmax,
    values,
    windows,
)
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
