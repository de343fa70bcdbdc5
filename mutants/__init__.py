"""Implementations that are wrong on purpose, each naming the law that must catch it.

    mutant.py    a mutant, and a family of mutants
    tiled/       in tensor operations          triton/  in impls/triton
    numba/       in impls/numba                cuda/    in impls/cuda and examples
    races/       races of every kind, and which layer of race detection finds which
    judging.py   judges a mutant by its law
    power/       judges every mutant by all laws, and by the rules of other suites
    command.py   the command flash-attest power

Each family's folder has a build.py, which loads an edited source.

flash-attest power              each mutant by its law: verdict, smallest case
flash-attest power --matrix     each mutant by all laws and other suites' rules: which catch it
flash-attest power --races      each planted race by each layer of race detection
flash-attest power --page power.html --from FILE ...
                                the results of --matrix --json FILE as a page
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
        (*tiled.MUTANTS, *triton.MUTANTS, *cuda.MUTANTS, *numba.MUTANTS, *races.MUTANTS, *races.OF_SIZES),
        key=lambda mutant: mutant.name,
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
