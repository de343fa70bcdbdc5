"""Makes each mutant a plug-in: pytest --impl-from=mutants/by_name.py:cuda_fa2_forward_barrier_1
judges it by every law.

A mutant can then be loaded like any implementation, also in another process, as the sanitizer layer
requires.
"""

from __future__ import annotations

import os
from dataclasses import replace

from flash_attest.impls import Implementation
from flash_attest.impls.contract.loading import option_of
from flash_attest.mutants import ALL, Mutant, build
from flash_attest.properties.judging.origin import OwnRun

# This word before a mutant's name selects the original implementation, under the mutant's name.
UNEDITED = "unedited_"


def origin(mutant: Mutant) -> OwnRun:
    """Return how another process finds the mutant."""
    return OwnRun(option(mutant))


def option(mutant: Mutant) -> str:
    """Return the option that names the mutant on a command line."""
    name = mutant.name if mutant.edits else f"{UNEDITED}{mutant.name}"
    return option_of(f"{os.path.relpath(os.path.realpath(__file__))}:{name}")


def __getattr__(name: str) -> Implementation:
    for mutant in ALL:
        if mutant.name == name:
            return build(mutant)
        if f"{UNEDITED}{mutant.name}" == name:
            return build(replace(mutant, edits=()))
    raise AttributeError(name)
