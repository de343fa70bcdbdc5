"""The power of the layers of race detection: planted races of every kind, judged by every layer
under every perturbation.

cuda.py, numba.py, triton.py   races that no other file of mutants/ plants
sizes.py       races that need several batches, heads or tiles, outside of the matrix
kinds.py       every planted race by its kind
cells.py       one race, judged by one layer under one perturbation
matrix.py      all races, several processes at a time, results on disk
page.py        the tables of docs/why/races.md
command.py     flash-attest power --races
"""

from flash_attest.mutants.mutant import Mutant
from flash_attest.mutants.races import cuda, numba, sizes, triton

MUTANTS: list[Mutant] = [*cuda.MUTANTS, *numba.MUTANTS, *triton.MUTANTS]
OF_SIZES: list[Mutant] = sizes.MUTANTS
