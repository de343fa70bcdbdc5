"""Cases next to the lengths at which an implementation takes another path."""

import pytest

from flash_attest.impls.contract.record import ContractError
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.limits import Limits
from flash_attest.properties.cases.paths import path_lengths
from flash_attest.properties.cases.strategies import RARE, attention_cases
from tests.properties.cases.drawing import ANY, EVERYTHING, implementation

DECODING = implementation("decoding_path", paths={"seqlen_k": (256, 16384)}, **EVERYTHING)
SQUARE = implementation("square_path", paths={"seqlen_k": (200, 16384)})
PLAIN = implementation("no_path", **EVERYTHING)
LONG_TILE = implementation("long_tile", tile=(64, 128))
CPU = Limits.on("cpu")


def cases(impl, n=150, draws=ANY):
    return Drawing(attention_cases(impl, "cpu", draws), 0, n).cases


def test_cases_lie_on_both_sides_of_a_declared_length():
    drawn = cases(DECODING)
    near = {n for case in drawn for n in (case.seqlen_k,) if n > 130}
    assert near == {255, 256, 257, 16383, 16384, 16385}
    assert all(case.seqlen_q <= 2 for case in drawn if case.seqlen_k > 130)
    assert len(drawn) / RARE["path"] - 5 <= sum(case.seqlen_k > 130 for case in drawn) <= len(drawn) / RARE["path"] + 1


def test_a_path_of_equal_lengths_is_taken_where_both_fit():
    drawn = {case.seqlen_q for case in cases(SQUARE) if case.seqlen_q > 130}
    assert drawn == {199, 200, 201}
    assert all(case.seqlen_q == case.seqlen_k for case in cases(SQUARE))


def test_a_short_path_keeps_the_other_length():
    short = implementation("short_path", paths={"seqlen_q": (100,)}, **EVERYTHING)
    assert {("seqlen_q", n) for n in (99, 100, 101)} == set(path_lengths(short, CPU, ANY, 130))
    assert any(case.seqlen_q in (99, 100, 101) and case.seqlen_k > 2 for case in cases(short))


def test_without_a_declaration_single_queries_have_many_keys():
    long = [case for case in cases(PLAIN) if case.seqlen_k > 130]
    assert {case.seqlen_k for case in long} <= {t + d for t in (256, 512, 1024, 4096) for d in (-1, 0, 1)}
    assert len(long) >= 5 and all(case.seqlen_q <= 2 for case in long)


def test_two_tiles_are_drawn_where_a_tile_is_long():
    assert set(path_lengths(LONG_TILE, CPU, ANY, 130)) == {("seqlen_k", n) for n in (255, 256, 257)}
    assert {255, 256, 257} & {case.seqlen_q for case in cases(LONG_TILE)}


@pytest.mark.parametrize("draws", [Draws.of(seqlen_k=(1, 70)), Draws.of(seqlen_k=(1, 1), cross=True)])
def test_a_law_about_other_lengths_gets_no_path(draws):
    assert path_lengths(DECODING, CPU, draws, 130) == ()


def test_emulated_kernels_and_small_cases_have_shorter_paths():
    for limits, longest in ((CPU, 4097), (Limits.on("cpu", 0.2), 1025), (Limits.on("cpu", small=True), 513)):
        assert max(n for _, n in path_lengths(PLAIN, limits, ANY, 130)) == longest
    assert max(n for _, n in path_lengths(DECODING, Limits.on("cpu", small=True), ANY, 130)) == 257


@pytest.mark.parametrize(
    "paths",
    [{"keys": (256,)}, {"seqlen_k": 256}, {"seqlen_k": (1,)}, {"seqlen_k": (2.5,)}, {"seqlen_q": "256"}, (256,)],
)
def test_a_wrong_declaration_is_an_error(paths):
    with pytest.raises(ContractError, match=r"paths=.*should give lengths from 2 to 1048576, as in"):
        implementation("wrong", paths=paths)
