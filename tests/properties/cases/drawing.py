"""Implementations that declare different features, and cases drawn for them."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from random import Random

import torch
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st

from flash_attest.impls import Implementation, Supports
from flash_attest.properties.cases.case import DTYPES, Case
from flash_attest.properties.cases.cover import COURSE
from flash_attest.properties.cases.drawing import COVERING, seed_alone
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.strategies import attention_cases

QUIET = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


def multiples_of_32(case):
    """Refuse lengths that are not multiples of 32, as many kernels do."""
    return "seqlen must divide by 32" if case.seqlen_q % 32 or case.seqlen_k % 32 else None


def implementation(name: str, **changed) -> Implementation:
    """Return an implementation that is never called.

    Keywords that are fields of Supports go there, the others to Implementation.
    """
    of_supports = {f.name for f in fields(Supports)}
    supports = Supports(**{key: changed.pop(key) for key in list(changed) if key in of_supports})
    return Implementation(name=name, forward=lambda q, k, v: q, supports=supports, **changed)


EVERYTHING = dict(
    dtypes=set(DTYPES.values()), headdims=range(1, 257), causal="optional", bias={"vector", "matrix"},
    cross=True, gqa=True, softmax_scale=True, strides=True,
)  # fmt: skip
FEATURES = dict(
    window={"left", "right", "both"}, softcap=True, sinks=True, sink_grad=True, lse_grad=True,
    headdims_v={(64, 128), (128, 64)}, hidden={"blocks", "indices"}, hidden_block=(8, 24), shared_kv="optional",
    lse="natural", backward=lambda *operands, **keywords: operands,
)  # fmt: skip
NO_BIAS = EVERYTHING | dict(bias="none")
LEAST = implementation("least")
ALL = implementation("everything", **EVERYTHING)
TODAY = implementation("every_feature", **EVERYTHING, **FEATURES)
# It meets the needs of laws about forms, which dense implementations do not.
PAGED = implementation(
    "paged", form="paged", page_sizes=range(1, 65), append=True, splits=range(1, 65), slack_rows="zero", **NO_BIAS
)
ALWAYS_CAUSAL = implementation("always_causal", causal="always", cross=True)
MULTIPLES = implementation("multiples_of_32", accepts=multiples_of_32, **EVERYTHING)
SQUARE = implementation("square_multiples_of_32", accepts=multiples_of_32)
NO_EMPTY_ROWS = implementation("no_empty_rows", empty_rows="undefined", **EVERYTHING)
TOP_LEFT = implementation("top_left", empty_rows="undefined", causal_alignment="top_left", **EVERYTHING)
ONE_HEADDIM = implementation("one_headdim", headdims={96})
LARGE_HEADDIM = implementation("large_headdim", headdims={512, 1024})
GQA = implementation("gqa", gqa=True, dtypes={torch.bfloat16})
VECTOR = implementation("vector_bias", bias={"vector"}, causal="optional")
IMPLS = [
    LEAST,
    ALL,
    TODAY,
    ALWAYS_CAUSAL,
    MULTIPLES,
    SQUARE,
    NO_EMPTY_ROWS,
    TOP_LEFT,
    ONE_HEADDIM,
    LARGE_HEADDIM,
    GQA,
    VECTOR,
]

ANY = Draws()


def drawn(
    impl: Implementation, draws: Draws = ANY, n: int = 100, device: str = "cpu", small: bool = False
) -> tuple[list[Case], int]:
    """Draw cases for a law with these `draws`. Returns n cases, and how many further draws were
    rejected.
    """
    return _drawn(IMPLS.index(impl), draws, n, device, small)


@cache
def _drawn(number: int, draws: Draws, n: int, device: str, small: bool) -> tuple[list[Case], int]:
    cases, begun = [], [0]
    strategy = attention_cases(IMPLS[number], device, draws, small=small)

    @seed(0)
    @settings(QUIET, max_examples=n, phases=(Phase.generate,), backend=COVERING)
    @given(st.data())
    def keep(data):
        begun[0] += 1
        cases.append(data.draw(strategy))

    with seed_alone(), COURSE.from_the_start(0):
        keep()
    return cases, begun[0] - len(cases)


def smallest(impl: Implementation, condition, start: int = 0, **draws) -> Case:
    """Return the case to which a law shrinks its failures if it fails under this condition."""
    configured = settings(QUIET, max_examples=2000)
    with seed_alone():
        return find(
            attention_cases(impl, "cpu", Draws.of(**draws)), condition, settings=configured, random=Random(start)
        )
