"""A run of few cases compiles few kernels: a set of features has the same kinds in all laws."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from flash_attest.impls import python_tiled
from flash_attest.properties.cases.kinds import MOST_CASES, PER_SET, has_kind, kinds_of, padded, set_of
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.law import laws

SUPPORTS = replace(python_tiled.IMPL.supports, headdims=range(1, 257), headdims_v={(192, 128), (64, 128), (8, 16)})
IMPL = replace(python_tiled.IMPL, name="compiled", compiles=True, devices={"cuda"}, supports=SUPPORTS)
LAWS = ("test_out_matches_the_definition", "test_gradients_match_the_definition", "test_order_of_keys_does_not_matter")


def drawn(impl, seed=0, examples=MOST_CASES):
    plan = Plan("cuda", examples=examples, seed=seed)
    return [case for law in LAWS for case in Judgement(laws()[law], impl, plan).drawing.cases]


def kernels(cases):
    """Return the kinds of each set of features that these cases have."""
    found = defaultdict(set)
    for case in cases:
        features = set_of(vars(case) | {"headdim_v": case.headdim_v != case.headdim})
        found[features].add((case.dtype, padded(case.headdim)))
    return found


@pytest.mark.parametrize("features", [(), ("bias",), ("softcap", "others")], ids=str)
def test_the_kinds_of_a_set_have_every_dtype_head_dim_and_width(features):
    kinds = kinds_of(IMPL, 0, features)
    assert len(set(kinds)) == PER_SET
    assert {kind.dtype for kind in kinds} == {torch.float32, torch.float16, torch.bfloat16}
    assert {kind.padded for kind in kinds} == {32, 64, 128, 256} and {kind.wide for kind in kinds} == {True, False}
    assert kinds == kinds_of(IMPL, 0, features) and kinds != kinds_of(IMPL, 1, features)


def test_laws_share_the_kinds_of_a_run_and_another_seed_has_others():
    cases = drawn(IMPL)
    assert all(has_kind(IMPL, 0, case) for case in cases)
    assert not all(has_kind(IMPL, 0, case) for case in drawn(IMPL, seed=1))
    few, many = kernels(cases), kernels(drawn(replace(IMPL, compiles=False)))
    assert all(len(few[features]) <= PER_SET < len(many[features]) for features in ((), ("bias",)))
    assert few.keys() == many.keys()


def test_a_run_of_many_cases_draws_everything():
    cases = drawn(IMPL, examples=MOST_CASES + 1)
    assert cases == drawn(replace(IMPL, compiles=False), examples=MOST_CASES + 1)
