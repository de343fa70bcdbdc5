"""Implementations that are wrong on purpose, each naming the law that must catch it.

    mutant.py    what a mutant is, and what a family of mutants is
    tiled/       in tensor operations          triton/  in impls/triton
    numba/       in impls/numba                cuda/    in impls/cuda and examples
    races/       races of every kind, and which layer of race detection finds which
    judging.py   a mutant before its law
    power/       every mutant before all laws, and before the rules of other suites
    command.py   what flash-attest power does

Each family's folder has a build.py, which says how an edited source is loaded.

flash-attest power              each mutant before its law: verdict, smallest case
flash-attest power --matrix     each mutant before all laws and other suites' rules: which of them catch it
flash-attest power --races      each planted race before each layer of race detection, under each perturbation
flash-attest power --page power.html --from FILE ...     what --matrix --json FILE found, as a page
"""

from flash_attest.mutants import cuda, numba, races, tiled, triton
from flash_attest.mutants.mutant import (
    CONTRACT,
    Family,
    Mutant,
    MutantError,
    beyond_smallest,
    build,
    edited_source,
    elsewhere,
)

ALL: tuple[Mutant, ...] = tuple(
    sorted(
        (*tiled.MUTANTS, *triton.MUTANTS, *cuda.MUTANTS, *numba.MUTANTS, *races.MUTANTS), key=lambda mutant: mutant.name
    )
)

__all__ = [
    "ALL",
    "CONTRACT",
    "Family",
    "Mutant",
    "MutantError",
    "beyond_smallest",
    "build",
    "edited_source",
    "elsewhere",
]
