"""Implementations of which a run judges no law, each for another reason, and one that is right."""

import itertools
from dataclasses import replace

import torch

from flash_attest import Absent
from flash_attest.properties.law import laws
from tests.plugins import good


def one_row(case):
    """Take one query and one key, of which every kernel gives v."""
    return None if case.seqlen_q == case.seqlen_k == 1 else "takes one row"


CALLS = itertools.count()


def counts(q, k, v):
    """Return another number from each call."""
    return torch.full_like(v, next(CALLS))


IMPLS = [
    good.IMPL,
    replace(
        good.IMPL,
        name="known",
        forward=counts,
        outside="undefined",
        known_failures=dict.fromkeys(laws(), "everything, #1"),
    ),
    replace(good.IMPL, name="one_row", supports=replace(good.IMPL.supports, accepts=one_row)),
    replace(good.IMPL, name="on_gpu", devices={"cuda"}),
    Absent("absent", "kernels are not installed: pip install kernels"),
]
