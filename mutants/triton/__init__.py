"""Bugs planted in the Triton kernels."""

from flash_attest.mutants.mutant import Mutant
from flash_attest.mutants.triton import (
    backward,
    compiled,
    forward,
    merge,
    offsets,
    paged,
    softcap_and_sinks,
    streams,
    values,
    varlen,
    windows,
)

FILES = (
    forward, paged, merge, backward, windows, softcap_and_sinks, values, varlen, compiled, offsets, streams,
)  # fmt: skip
MUTANTS: list[Mutant] = [mutant for file in FILES for mutant in file.MUTANTS]
