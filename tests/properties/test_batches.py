"""Right kernels whose bits do not depend on the batch or on chunks, and what others are told."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import Implementation, Supports, python_tiled
from flash_attest.mutants.mutant import build
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.invariance import EXACT, EXP, MUTANTS, PROMISES, split_by
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS, REFUSED
from flash_attest.properties.law import laws
from flash_attest.properties.test_batches import is_small

BATCH, CHUNKS = "test_batch_changes_no_bit", "test_chunks_change_no_bit"
TWINS = {
    "tiles in one order": EXACT,
    "splits of a fixed size": (*EXACT, *split_by("48")),
    "as many splits for each batch": split_by("seqlen_k * min(nheads, 8) // 8 or 1"),
    "exp2 for all queries": (*EXACT, (EXP, "p = torch.exp2((s - m_safe) * 1.4426950408889634)")),
}
QUICK = ("splits of a fixed size",)
OF_ONE_LAW = {"as many splits for each batch": BATCH}


def each_twin() -> list:
    """Return a parameter for each law of each twin."""
    return [
        pytest.param(law, words, marks=() if words in QUICK else pytest.mark.thorough, id=f"{law}-{words}")
        for words in TWINS
        for law in (BATCH, CHUNKS)
        if OF_ONE_LAW.get(words, law) == law
    ]


@pytest.mark.parametrize("law, words", each_twin())
def test_right_kernel_keeps_its_promise(law, words):
    twin = build(planted(name="twin", law=law, declares=PROMISES, edits=TWINS[words], smallest={}, story=""))
    result = judge(laws()[law], twin, Plan(device="cpu", examples=8, goes_on=False, try_contract=False))
    assert result.verdict == PASS, result.message or result.reason
    assert result.reason == ""


# A case in which the bits change, of one bug of each law; nightly, cases are drawn for every bug.
CHANGING = {
    "a_single_sequence_has_another_exp": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 sinks=count",
    "a_single_query_has_another_exp": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 sinks=count",
}


@pytest.mark.parametrize(
    "mutant, case",
    [
        *(pytest.param(mutant, CHANGING[mutant.name], id=mutant.name) for mutant in MUTANTS if mutant.name in CHANGING),
        *(pytest.param(m, None, marks=pytest.mark.thorough, id=f"{m.name} drawn") for m in MUTANTS),
    ],
)
def test_bits_that_are_not_promised_may_change(mutant, case):
    """The law then says in how many cases they did not."""
    unpromised = replace(build(mutant), invariant=())
    how = Plan(device="cpu", examples=60, case=case and parse_case(case), goes_on=False, try_contract=False)
    result = judge(laws()[mutant.law], unpromised, how)
    assert result.verdict == PASS, result.message or result.reason
    assert int(result.reason.split(": ")[1].split(" of ")[0]) < result.cases


def test_kept_bits_are_counted():
    result = judge(laws()[CHUNKS], python_tiled.IMPL, Plan(device="cpu", examples=8, goes_on=False, try_contract=False))
    assert (
        result.reason == f'"chunks" is not declared in invariant: {result.cases} of {result.cases} cases kept all bits'
    )


def test_without_chunks_that_are_calls_nothing_is_called():
    """With as many queries as keys and no mask, part of the queries sees more keys than it has."""

    def forward(*_, **__):
        raise AssertionError

    supports = Supports(dtypes={torch.float32}, headdims={16})
    square = Implementation("square", forward, supports=supports)
    result = judge(laws()[CHUNKS], square, Plan(device="cpu", try_contract=False))
    assert (result.verdict, result.cases) == (REFUSED, 0) and "no chunk of the queries is a call" in result.reason


@pytest.mark.parametrize("seqlen, fits", ((512, True), (4489, False)))
def test_many_sequences_fit_on_a_gpu(seqlen, fits):
    """201 sequences of 4,489 have scores of 15 GiB, and autograd keeps them more than once."""
    many = parse_case(f"seqlen_q={seqlen} seqlen_k={seqlen} headdim=1 dtype=float32 batch=201")
    assert is_small(many, python_tiled.IMPL, "cuda") == fits
