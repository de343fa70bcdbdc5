"""How much the layers of race detection find: planted races of every kind before every layer and perturbation.

cuda.py, numba.py, triton.py   races that no other file of mutants/ plants
kinds.py       every planted race by its kind
cells.py       one of them before one layer under one perturbation
matrix.py      all of them, several processes at a time, results on disk
page.py        the tables of docs/races.md
command.py     python -m mutants --races
"""

from mutants.mutant import Mutant
from mutants.races import cuda, numba, triton

MUTANTS: list[Mutant] = [*cuda.MUTANTS, *numba.MUTANTS, *triton.MUTANTS]
