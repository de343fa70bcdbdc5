"""A deterministic failure is not called a race if another of its findings comes first."""

import re
from dataclasses import replace
from itertools import count

import pytest
import torch

from flash_attest.emulator.observation import STATIC_SHARED, Action, Kind, Side, Site, Space
from flash_attest.impls import (
    python_tiled,
    python_tiled_cache,
    python_tiled_merge,
    python_tiled_padded,
    python_tiled_paged,
    python_tiled_varlen,
    torch_math,
)
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.failures import LawBroken, Undecided, findings_of
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL
from flash_attest.properties.law import laws
from flash_attest.races.finding import Finding
from tests.trials import implementation, lines

LAW = laws()["test_out_matches_the_definition"]
SAME = "3 of 3 repeats fail in the same way: repeating shows no race"
DIFFERENT = "the same call gives different results"


def judged(function, law=LAW):
    """Return the result of a law that calls function(n) for cases with more than 20 keys.

    n counts the calls.
    """
    calls = count()

    def hold(trial):
        if trial.case.seqlen_k > 20:
            function(next(calls))

    return judge(replace(law, function=hold), torch_math.IMPL, Plan(examples=20, try_contract=False))


def test_the_set_of_findings_is_compared():
    def law(n):
        first, second = ("write past q", "write past k")[:: 1 if n % 2 else -1]
        raise LawBroken(first, second, findings=[first, second])

    result = judged(law)
    assert result.verdict == FAIL and SAME in lines(result.message) and DIFFERENT not in result.message


def test_a_finding_that_is_always_there_is_no_race():
    def law(n):
        raise LawBroken("write past q", findings=["write past q", f"write to address {n}"])

    observed = lines(judged(law).message)
    assert "3 of 3 repeats fail, 0 in the same way" in observed and "each time with: write past q" in observed
    assert not any(line.startswith(DIFFERENT) for line in observed)


def test_findings_without_anything_in_common_are_different_results():
    def law(n):
        raise LawBroken(f"write to address {n}")

    (line,) = [line for line in lines(judged(law).message) if line.startswith(DIFFERENT)]
    assert "a race, an access out of bounds, uninitialised memory" in line


def test_a_failure_at_another_line_of_the_law_does_not_come_and_go():
    """Hypothesis identifies a failure by the line that raises."""

    def law(n):
        if n % 2:
            raise LawBroken("q changed")
        raise LawBroken("q changed")

    result = judged(law)
    assert (result.verdict, result.reason) == (FAIL, "q changed") and SAME in lines(result.message)


def test_a_failure_that_comes_and_goes_does_so_at_any_line():
    def law(n):
        if n % 3 == 1:
            raise LawBroken("q changed")
        if n % 3 == 2:
            raise LawBroken("k changed")

    result = judged(law)
    assert result.verdict == FAIL and result.reason.startswith("not on every run: ")


def test_all_inputs_that_change_are_reported():
    """The kernel writes past the end of q, and into k."""

    def forward(q, k, v):
        torch.as_strided(q, (1,), (1,), q.storage_offset() + q.numel()).fill_(1.0)
        k[0, 0, 0, 0] += 1
        return torch_math.forward(q, k, v)[0]

    law = laws()["test_inputs_come_back_unchanged"]
    result = judge(law, implementation(forward), Plan(examples=2, try_contract=False))
    assert result.reason == "1 element around q (margins, gaps between rows) changed in the call"
    assert any(line.startswith("k[b=0 j=0 h=0 d=0] changed from ") for line in lines(result.message))
    assert SAME in lines(result.message)


WRITTEN = [
    (python_tiled_varlen, "q", "q[row=0 h=0 d=0]"),
    (python_tiled_varlen, "cu_seqlens_k", "cu_seqlens_k[b=0]"),
    (python_tiled_padded, "v", "v[b=0 j=0 h=0 d=0]"),
    (python_tiled_padded, "seqused_q", "seqused_q[b=0]"),
    (python_tiled_cache, "k", "k[slot=0 j=0 h=0 d=0]"),
    (python_tiled_cache, "cache_batch_idx", "cache_batch_idx[b=0]"),
    (python_tiled_paged, "q", "q[row=0 h=0 d=0]"),
    (python_tiled_paged, "v", "v[page=0 j=0 h=0 d=0]"),
    (python_tiled_paged, "block_table", "block_table[b=0 column=0]"),
    (python_tiled_merge, "out_parts", "out_parts[part=0 b=0 i=0 h=0 d=0]"),
    (python_tiled_merge, "lse_parts", "lse_parts[part=0 b=0 h=0 i=0]"),
]


@pytest.mark.parametrize("module, name, element", WRITTEN)
def test_an_input_of_any_form_is_named_by_its_own_axes(module, name, element):
    """The first element that was written is named, and the values that it had and has."""
    impl = module.IMPL

    def forward(*tensors, **keywords):
        named = dict(zip(("q", "k", "v") if len(tensors) == 3 else ("out_parts", "lse_parts"), tensors, strict=True))
        result = impl.forward(*tensors, **keywords)
        (named | keywords)[name].view(-1)[0] = 5
        return result

    wrong = replace(impl, forward=forward, traced=False)
    result = judge(laws()["test_inputs_come_back_unchanged"], wrong, Plan(examples=4, try_contract=False, small=True))
    assert result.verdict == FAIL and result.reason.startswith(f"{element} changed from "), result.reason
    assert " to 5 during the call (1 of " in result.reason


def judged_where(impl, case, **changed):
    """Return the result of the same law on a changed implementation, in one case."""
    wrong = replace(impl, traced=False, **changed)
    plan = Plan(try_contract=False, case=parse_case(case))
    return judge(laws()["test_inputs_come_back_unchanged"], wrong, plan)


def test_a_new_key_that_is_not_appended_is_no_change():
    impl = python_tiled_cache.IMPL

    def forward(q, k, v, **keywords):
        return impl.forward(q, k.clone(), v.clone(), **keywords)

    case = "seqlen_q=1 seqlen_k=3 headdim=4 dtype=float32 append=1"
    result = judged_where(impl, case, forward=forward, backward=None)
    assert re.match(r"k\[slot=\d j=2 h=0 d=0\] is nan after the call, should be -?\d", result.reason), result.reason


def test_a_change_by_one_ulp_shows_both_numbers():
    def forward(q, k, v):
        q.view(-1)[0] = torch.nextafter(q.view(-1)[0], torch.tensor(9.0))
        return torch_math.forward(q, k, v)[0]

    result = judged_where(implementation(forward), "seqlen_q=1 seqlen_k=1 headdim=8 dtype=float32")
    before, now = re.search(r"changed from (\S+) to (\S+) during", result.reason).groups()
    assert before != now, result.reason


def test_heads_have_the_numbers_of_the_suite():
    """Head 1 of the kernel is head 3 of 6, where heads of a group are not neighbours."""

    def forward(q, k, v):
        q[:, :, 1] += 1
        return torch_math.forward(q, k.repeat(1, 1, 3, 1), v.repeat(1, 1, 3, 1))[0]

    impl = implementation(forward, supports=dict(dtypes={torch.float32}, headdims={8}, gqa=True), gqa_order="modulo")
    result = judged_where(impl, "seqlen_q=1 seqlen_k=1 headdim=8 dtype=float32 nheads=6 nheads_k=2")
    assert result.reason.startswith("q[b=0 i=0 h=3 d=0] changed from "), result.reason


def test_v_inside_k_is_not_reported_beside_k():
    impl = python_tiled.IMPL

    def forward(q, k, v, **keywords):
        result = impl.forward(q, k, v, **keywords)
        k[..., -1] += 1
        return result

    case = "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float32 headdim_v=16 shared_kv=True"
    result = judged_where(impl, case, forward=forward)
    assert result.reason.startswith("k[b=0 j=0 h=0 d=63] changed from ") and "around v" not in result.message


def test_an_error_of_a_law_in_one_of_two_runs_is_not_hidden():
    """Hypothesis runs a case again after an error. The error is raised if there is none then."""

    def law(n):
        if n == 0:
            raise ZeroDivisionError("in the law")

    with pytest.raises(ZeroDivisionError, match="in the law"):
        judged(law)


def test_a_case_that_stays_open_withdraws_no_finding():
    """A law that collects findings continues after the first. Memory may run out in a later
    case.
    """
    one, two = (Side(Action.WRITE, Site("kernel.cu", line), None, None) for line in (1, 2))

    def law(n):
        if n:
            raise Undecided("out of memory")
        raise findings_of([Finding(Kind.RACE, Space.SHARED, STATIC_SHARED, None, one, two)])

    result = judged(law, replace(LAW, collects=True))
    assert (result.verdict, result.reason.partition(":")[0]) == (FAIL, "race")
