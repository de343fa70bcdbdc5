"""Right kernels that look like planted bugs of pages, new keys, splits and rows of nobody."""

import pytest

from flash_attest.mutants.mutant import build
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.forms import LENGTHS, ROW, remembered
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws

OUT = "out = q.new_zeros(total_q, nheads, v.shape[2])"
NEW_KEY = "        k[page, row] = k_new[n, new]\n"
PAGED, VARLEN = "python_tiled_paged", "python_tiled_varlen"
TWINS = {
    "pages that follow each other are read at once": (
        "test_order_of_pages_does_not_matter",
        PAGED,
        (
            (
                ROW,
                "(x.flatten(0, 1)[pages[0] * page_size + j] "
                f"if bool((pages[j // page_size] == pages[0] + j // page_size).all()) else {ROW})",
            ),
        ),
    ),
    "a page is written as a whole, with its other rows as they were": (
        "test_append_then_attend_is_concatenate",
        PAGED,
        (
            (
                NEW_KEY,
                "        whole = k[page].clone()\n"
                "            whole[row] = k_new[n, new]\n"
                "            k[page] = whole\n",
            ),
        ),
    ),
    "the sink joins in the last split": (
        "test_number_of_splits_does_not_matter",
        PAGED,
        (("sink = sinks if part == 0 else None", "sink = sinks if part == num_splits - 1 else None"),),
    ),
    "rows behind the last sequence are cleared": (
        "test_rows_of_nobody_are_zero",
        VARLEN,
        (
            (
                OUT,
                "out = q.new_empty(total_q, nheads, v.shape[2])\n    out[queries.starts[-1] + queries.lengths[-1] :] = 0",
            ),
        ),
    ),
    "a plan is kept by the values of its lengths": (
        "test_answers_follow_lengths_and_tables",
        PAGED,
        (
            ("MOST_SPLITS = 64\n", "MOST_SPLITS = 64\nPLANS = {}\n"),
            (LENGTHS, f"{LENGTHS}    lengths = PLANS.setdefault(tuple(lengths), lengths)\n"),
        ),
    ),
    "sequences without queries are remembered until the tensor changes": (
        "test_answers_follow_lengths_and_tables",
        VARLEN,
        remembered(
            "tensor[0] is cu_seqlens_q and tensor[1] == cu_seqlens_q._version", "(cu_seqlens_q, cu_seqlens_q._version)"
        ),
    ),
    **{
        f"out and lse lie in one allocation, {words}": (
            law,
            VARLEN,
            (
                (
                    f"    {OUT}\n    lse = q.new_zeros(nheads, total_q, dtype=torch.float32)\n",
                    "    width = v.shape[2] + 1\n"
                    "    memory = q.new_zeros(nheads, total_q + 5, width, dtype=torch.float32)\n"
                    "    out, lse = memory[:, :total_q, :-1].transpose(0, 1), memory[:, :total_q, -1]\n",
                ),
                ("    return out, lse\n\n\ndef attend", "    return out.to(q.dtype), lse\n\n\ndef attend"),
            ),
        )
        for words, law in (
            ("and stay", "test_outputs_stay_as_they_were_returned"),
            ("and may be written to", "test_outputs_may_be_written_to"),
        )
    },
    "a page is an offset of 64 bits": (
        "test_pages_may_lie_far_apart",
        PAGED,
        ((ROW, "x.flatten(0, 1)[pages[j // page_size].long() * page_size + j % page_size]"),),
    ),
}


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("words", TWINS)
def test_law_passes_its_right_twin(words, examples):
    law, impl, edits = TWINS[words]
    twin = build(planted(name="twin", law=law, impl=impl, edits=edits, smallest={}, story=""))
    result = judge(laws()[law], twin, Plan(examples=examples, try_contract=False, small=examples < 10, goes_on=False))
    assert result.verdict == PASS, result.message or result.reason
