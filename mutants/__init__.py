"""Implementations that are wrong on purpose, each naming the law that must catch it.

python -m mutants              each mutant before its law: verdict, smallest case
python -m mutants --matrix     each mutant before all laws: which of them see it
"""

from mutants import (
    backward,
    boundaries,
    calling,
    cuda_backward,
    cuda_barriers,
    cuda_fa1,
    cuda_fa2,
    cuda_forward,
    cuda_tiles,
    masks,
    memory,
    offsets,
    races,
    softmax,
    streams,
    triton_backward,
    triton_compiled,
    triton_forward,
)
from mutants.mutant import Mutant, MutantError, beyond_smallest, build, edited_source, elsewhere

OF_TENSOR_OPERATIONS = (backward, boundaries, calling, masks, memory, races, softmax)
OF_BOTH = (offsets, streams)  # Triton and CUDA
OF_TRITON = (triton_forward, triton_backward, triton_compiled)
OF_CUDA = (cuda_forward, cuda_barriers, cuda_tiles, cuda_fa1, cuda_fa2, cuda_backward)

ALL: tuple[Mutant, ...] = tuple(
    sorted(
        (mutant for file in (*OF_TENSOR_OPERATIONS, *OF_TRITON, *OF_CUDA, *OF_BOTH) for mutant in file.MUTANTS),
        key=lambda mutant: mutant.name,
    )
)

__all__ = ["ALL", "Mutant", "MutantError", "beyond_smallest", "build", "edited_source", "elsewhere"]
