"""Each mutant as a plug-in: pytest --impl-from=mutants/by_name.py:cuda_fa2_forward_barrier_1 judges it by every law.

So a mutant is found as any implementation is, in another process too, which the sanitizer layer needs.
"""

from __future__ import annotations

import os
from dataclasses import replace

from flash_attest.impls import Implementation
from flash_attest.impls.contract.registry import option_of
from flash_attest.mutants import ALL, Mutant, build
from flash_attest.properties.judging.origin import OwnRun

UNEDITED = "unedited_"  # before the name of a mutant: what it was made of, under the mutant's name


def origin(mutant: Mutant) -> OwnRun:
    """How another process finds it."""
    return OwnRun(option(mutant))


def option(mutant: Mutant) -> str:
    """How a command line names it."""
    name = mutant.name if mutant.edits else f"{UNEDITED}{mutant.name}"
    return option_of(f"{os.path.relpath(os.path.realpath(__file__))}:{name}")


def __getattr__(name: str) -> Implementation:
    for mutant in ALL:
        if mutant.name == name:
            return build(mutant)
        if f"{UNEDITED}{mutant.name}" == name:
            return build(replace(mutant, edits=()))
    raise AttributeError(name)
