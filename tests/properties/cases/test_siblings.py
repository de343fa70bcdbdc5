"""Siblings of a case differ from it in one thing, and are supported."""

from dataclasses import replace

from flash_attest.impls import python_tiled
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.cases.siblings import MOST, siblings
from flash_attest.properties.cases.support import unsupported

CASE = parse_case("seqlen_q=5 seqlen_k=9 headdim=3 dtype=float32 nheads=2 nheads_k=1")


def found(impl=python_tiled.IMPL, case=CASE, turn=None):
    return siblings(impl, case, turn)


def test_all_siblings_differ_in_one_thing():
    what = [CASE.changed_in(other) for other in found()]
    assert {"dtype=float16", "causal=True", "headdim=4", "layout=packed", "seqlen_q=1", "seqlen_k=42"} <= set(what)
    assert {"batch=3", "nheads_k=2", "softmax_scale=0.1", "bias=vector"} <= set(what)
    several = {text for text in what if " " in text}
    assert all(
        text.startswith(("hidden=", "nheads=4 nheads_k=2", "headdim=3 headdim_v", "headdim=1 ")) for text in several
    )
    assert not any(unsupported(python_tiled.IMPL, other) for other in found())


def test_cases_take_turns():
    """Fifteen cases have all features and sizes between them."""
    of_each = [found(turn=n) for n in range(15)]
    assert all(len(others) == sum(MOST.values()) and set(others) <= set(found()) for others in of_each)
    together = {CASE.changed_in(other).partition("=")[0] for others in of_each for other in others}
    assert together == {CASE.changed_in(other).partition("=")[0] for other in found()}


def test_shorter_ones_come_first_and_the_longest_last():
    lengths = [other.seqlen_q * other.seqlen_k for other in found()]
    assert lengths[0] < CASE.seqlen_q * CASE.seqlen_k < lengths[-1] == max(lengths)


def test_siblings_fit_what_an_implementation_accepts():
    def eights(case):
        return None if case.seqlen_q % 8 == 0 == case.seqlen_k % 8 else "lengths should be multiples of 8"

    impl = replace(python_tiled.IMPL, supports=replace(python_tiled.IMPL.supports, accepts=eights, cross=False))
    case = CASE.but(seqlen_q=16, seqlen_k=16)
    assert {other.seqlen_q for other in found(impl, case)} == {8, 16, 56}
    assert not any(unsupported(impl, other) for other in found(impl, case))


def test_features_that_exclude_each_other_are_left_out():
    shared = [CASE.but(shared_kv=True).changed_in(other) for other in found(case=CASE.but(shared_kv=True))]
    assert "shared_kv=False" in shared and not any("headdim_v" in what for what in shared)
