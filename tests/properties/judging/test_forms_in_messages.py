"""Shrinking, clues and lines of cases in a form: neighbours, slack, pages, new keys, splits."""

import pytest

from flash_attest.impls import python_tiled_merge, torch_math
from flash_attest.impls.contract.supports import FORMS
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.form_features import OF_FORM
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.judging.clues import clues_of, not_plain, value_clue
from flash_attest.properties.judging.explain import named
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.shrink import smallest, steps_from
from flash_attest.properties.law import laws
from tests.impls.published import over_sequences
from tests.properties.mistakes import IN_A_FORM, OF_FEATURES, implementation

OUT = laws()["test_out_matches_the_definition"]
AROUND = "neighbours=mixed slack=17 append=5 page_order=shuffled page_size=16"
MERGED = parse_case("seqlen_q=1 seqlen_k=3 headdim=1 dtype=float32 num_splits=2")
CASE = parse_case(f"seqlen_q=9 seqlen_k=33 headdim=3 dtype=float32 {AROUND}")


def last_row_wrong(q, k, v, *, cu_seqlens_q, max_seqlen_q, block_table, seqused_k, max_seqlen_k, causal, k_new, v_new):
    """Add 1 to the last row of each sequence that has two queries or more."""
    lengths, size = seqused_k.tolist(), k.shape[1]

    def keys(n):
        at = range(lengths[n] + (0 if k_new is None else k_new.shape[1]))
        rows = [int(block_table[n, j // size]) * size + j % size for j in at]
        if k_new is not None:
            k.flatten(0, 1)[rows[lengths[n] :]], v.flatten(0, 1)[rows[lengths[n] :]] = k_new[n], v_new[n]
        return [x.flatten(0, 1)[rows] for x in (k, v)]

    out, lse = over_sequences(q, cu_seqlens_q.tolist(), keys, causal=causal)
    for n in range(len(lengths)):
        if cu_seqlens_q[n + 1] - cu_seqlens_q[n] >= 2:
            out[cu_seqlens_q[n + 1] - 1] += 1
    return out, lse


PAGED = implementation(last_row_wrong, supports=dict(form="paged", page_sizes={4, 16}, append=True, **IN_A_FORM))


def judgement_of(impl, law=OUT) -> Judgement:
    return Judgement(law, impl, Plan(try_contract=False))


def shrunk(impl, case, law=OUT):
    """Return the smallest case that fails as this one does."""
    judgement = judgement_of(impl, law)
    with pytest.raises(LawBroken) as broken:
        judgement.hold_aside(case)
    return smallest(judgement, case, broken.value, judgement.hold_aside)[1]


def test_what_is_around_a_case_is_removed_first():
    steps = [*steps_from(judgement_of(PAGED), CASE)]
    plain = {name: FEATURES[name].values[0] for name in OF_FORM}
    assert steps[0] == CASE.but(**plain)
    one_by_one = {CASE.but(**{name: plain[name]}) for name in OF_FORM} - {CASE}
    assert len(one_by_one) == 5 and one_by_one <= {*steps}
    first_of_sizes = next(n for n, step in enumerate(steps) if step.seqlen_q != CASE.seqlen_q)
    assert one_by_one <= {*steps[:first_of_sizes]}
    assert {step.neighbours for step in steps} == {"none", "empty", "one", "longer", "mixed"}
    assert {step.append for step in steps} == {0, 1, 5} and {step.slack for step in steps} == {0, 1, 17}


def test_fewer_keys_are_tried_with_other_numbers_of_splits():
    """The number of splits and the seed decide which parts of two keys are empty."""
    steps = {(step.seqlen_k, step.num_splits) for step in steps_from(judgement_of(python_tiled_merge.IMPL), MERGED)}
    assert {(2, 2), (2, 3), (1, 3)} <= steps and not any(n > 3 for _, n in steps)


def test_a_mistake_that_needs_nothing_around_the_case_keeps_nothing():
    case = shrunk(PAGED, CASE)
    assert {name: getattr(case, name) for name in OF_FORM} == {name: FEATURES[name].values[0] for name in OF_FORM}
    assert case.seqlen_q == 2


def test_a_mistake_keeps_what_it_needs():
    law, impl = OF_FEATURES["pages_as_if_in_order"]
    case = shrunk(impl, CASE.but(append=0, neighbours="longer", seed=1), law)
    assert case.page_order == "shuffled"
    assert (case.neighbours, case.slack, case.append, case.num_splits) == ("none", 0, 0, 1)


def test_neighbours_are_one_clue():
    """Their lengths follow from the seed, so that another value may be right by chance."""
    judgement = judgement_of(PAGED)
    case = parse_case("seqlen_q=9 seqlen_k=9 headdim=1 dtype=float32 neighbours=longer")
    assert not_plain(judgement, case) == {"neighbours"}
    (clue,) = clues_of(judgement, case, lambda other: other.neighbours == "longer")
    assert clue.words == "neighbours" and clue.has(case.but(neighbours="empty"))
    assert clue.without(case).neighbours == "none" and not clue.has(clue.without(case))


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("slack", [1, 17], "rows of slack"),
        ("append", [5], "5 new keys"),
        ("append", [1, 5], "append"),
        ("num_splits", [2, 3, 8, 64], "num_splits"),
        ("num_splits", [8, 64], "num_splits 8, 64"),
        ("page_order", ["shuffled"], "pages shuffled"),
    ],
)
def test_words_of_a_clue(name, values, words):
    assert value_clue(FEATURES[name], values, FEATURES[name].values[0]).words == words


def test_a_line_says_where_the_rows_lie():
    case = parse_case("seqlen_q=5 seqlen_k=9 headdim=1 dtype=float32 neighbours=longer slack=1")
    assert named(torch_math.IMPL, case.but(neighbours="none", slack=0)) == [
        "  torch_math   seqlen_q=5 seqlen_k=9 headdim=1 dtype=float32"
    ]
    _, line = named(implementation(last_row_wrong, supports=dict(form="varlen", **IN_A_FORM)), case)
    assert line == (
        "  packed as lengths_q 5* 11, lengths_k 9* 19 (* judged), max_seqlen_q=12, max_seqlen_k=20, 1 row of slack"
    )


def test_every_form_has_such_a_line():
    forms = {
        "varlen": "packed as ", "padded": "padded to ", "cache": "in a cache of ", "paged": "paged as ",
        "parts": "in parts of ",
    }  # fmt: skip
    for form, start in forms.items():
        more = dict(page_sizes={4}) if form == "paged" else dict(splits=(1, 2)) if form == "parts" else {}
        impl = implementation(last_row_wrong, supports=dict(form=form, **more))
        (_, line) = named(impl, parse_case("seqlen_q=5 seqlen_k=5 headdim=1 dtype=float32"))
        assert line.startswith(f"  {start}"), line
    assert {*forms, "dense"} == {*FORMS}
