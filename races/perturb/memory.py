"""Perturbations of memory and of earlier calls, on every device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flash_attest.races.perturb.perturbation import Perturbation, Setting
from flash_attest.races.poison import PATTERNS, poisoned

EVERYWHERE = frozenset({"cuda", "cpu"})


@contextmanager
def _other_case(setting: Setting) -> Iterator[None]:
    setting.other()
    yield


@contextmanager
def _poison(setting: Setting) -> Iterator[None]:
    with poisoned(setting.random("poison").choice(PATTERNS), setting.device, setting.nbytes):
        yield


OTHER_CASE = Perturbation(
    "other_case", "a call of the same shape with other values runs in between", _other_case, EVERYWHERE
)
POISON = Perturbation("poison", "fresh memory holds huge numbers, NaN or zeros", _poison, EVERYWHERE)
