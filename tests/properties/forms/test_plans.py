"""Packing and unpacking give the dense rows back, and tables lead to the rows that a plan says."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.supports import Supports
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.properties.cases.case import NEIGHBOURS, Case
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.forms import LARGE, packed, plan_of
from flash_attest.properties.forms.sequences import sequences_of

GATHERS = ("varlen", "padded", "cache", "paged")
FILL = 1234.0  # no value of a case
CASE = Case(batch=2, seqlen_q=3, seqlen_k=5, nheads=4, nheads_k=2, headdim=8)


def of(form: str, **more) -> Implementation:
    """Return an implementation of a form that takes every length."""
    supports = Supports(
        dtypes={torch.float32}, headdims=range(1, 129), cross=True, gqa=True, causal="optional", form=form,
        page_sizes=range(1, 65) if form == "paged" else (), append=form in ("cache", "paged"),
        splits=range(1, 65), sinks=form == "varlen", lse_grad=form == "varlen",
    )  # fmt: skip
    backward = (lambda *tensors: None) if form == "varlen" else None
    return Implementation(
        "tested", lambda *tensors: None, backward, devices={"cpu"}, supports=supports, lse="natural", **more
    )


def cases_of(form: str) -> list[Case]:
    """Return a case of each kind of neighbours, with slack, shuffled pages and new keys."""
    details = [dict()]
    if form in ("cache", "paged"):
        details.append(dict(append=2))
    if form == "paged":
        details += [dict(page_size=2, page_order="shuffled"), dict(page_size=5, append=1)]
    both = product(NEIGHBOURS, (0, 3), details)
    return [CASE.but(neighbours=kind, slack=slack, seed=n, **more) for n, (kind, slack, more) in enumerate(both)]


each = pytest.mark.parametrize(("form", "case"), [(form, case) for form in GATHERS for case in cases_of(form)])


@each
def test_unpacking_gives_the_rows_of_the_case(form, case):
    impl, x = of(form), build(case, "cpu")
    plan = plan_of(impl, case, x)
    handed = plan.pack(x, FILL)
    k, v = handed.k.clone(), handed.v.clone()
    if plan.new is not None:
        plan.append(k, handed.k_new)
        plan.append(v, handed.v_new)
    lse = torch.arange(handed.q[..., 0].numel(), dtype=torch.float32).view(handed.q.shape[:-1]).transpose(-1, -2)
    got = plan.unpack(Outputs(out=handed.dout, lse=lse, dq=handed.q, dk=k, dv=v))
    for name, want in (("out", x.dout), ("dq", x.q), ("dk", x.k), ("dv", x.v)):
        assert torch.equal(getattr(got, name), want), name
    assert got.lse.shape == (2, 4, 3)
    assert torch.equal(got.lse[1, 2], lse.transpose(-1, -2).reshape(-1, 4)[plan.q_rows[1], 2])


@each
def test_each_row_has_one_owner_and_the_others_hold_what_fills_them(form, case):
    impl, x = of(form), build(case, "cpu")
    plan = plan_of(impl, case, x)
    handed = plan.pack(x, FILL)
    for rows, theirs, buffer in (
        (plan.q_rows, plan.q_theirs, handed.q), (plan.k_rows, plan.k_theirs, handed.k),
    ):  # fmt: skip
        owned = torch.cat((rows.flatten(), theirs))
        flat = buffer.reshape(-1, *buffer.shape[-2:])
        assert len(owned.unique()) == len(owned) and int(owned.max()) < len(flat)
        new = plan.new.flatten() if plan.new is not None and buffer is handed.k else torch.arange(0)
        nobodys = torch.ones(len(flat), dtype=torch.bool)
        nobodys[owned] = False
        nobodys[new] = True  # handed as k_new, so the cache does not have them yet
        assert torch.equal((flat == FILL).flatten(1).all(1), nobodys)


@each
def test_tables_and_lengths_lead_to_the_rows(form, case):
    """A kernel finds in the tables the rows that the plan names."""
    impl, x = of(form), build(case, "cpu")
    handed = packed(impl, case, x, FILL)
    plan = handed.plan
    judged = [b for b, one in enumerate(sequences_of(impl, case, fixed_q=form == "cache")) if one.judged]
    for number, b in enumerate(judged):
        keys = torch.arange(case.seqlen_k)
        if form == "varlen":
            rows = handed.cu_seqlens_k[b] + keys
            assert int(handed.cu_seqlens_k[b + 1] - handed.cu_seqlens_k[b]) == case.seqlen_k
        elif form == "padded":
            rows = b * handed.k.shape[1] + keys
            assert (int(handed.seqused_q[b]), int(handed.seqused_k[b])) == (case.seqlen_q, case.seqlen_k)
        elif form == "cache":
            rows = handed.cache_batch_idx[b] * handed.k.shape[1] + keys
            assert int(handed.cache_seqlens[b]) == case.seqlen_k - case.append
        else:
            size = handed.k.shape[1]
            rows = handed.block_table[b][keys // size] * size + keys % size
            assert int(handed.seqused_k[b]) == case.seqlen_k - case.append
        assert torch.equal(plan.k_rows[number], rows.long())
    assert all(table.dtype == torch.int32 for table in plan.tables.values())
    longest = {name: n - case.slack for name, n in plan.numbers.items()}
    lengths = {
        f"max_seqlen_{name}": max(getattr(one, f"seqlen_{name}") for one in sequences_of(impl, case)) for name in "qk"
    }
    assert longest.items() <= lengths.items()


def test_the_ends_of_a_table_are_no_page_if_rows_of_nobody_are_never_read():
    case = CASE.but(page_size=2, neighbours="longer", slack=1)
    for slack, wanted in (("anything", {-1}), ("unseen", {-1}), ("finite", {8 + 11, 0})):
        handed = packed(of("paged", slack=slack), case, build(case, "cpu"), FILL)
        ends = {int(n) for b, row in enumerate(handed.block_table) for n in row[-(-int(handed.seqused_k[b]) // 2) :]}
        assert ends and (ends == wanted if slack != "finite" else all(0 <= n < len(handed.k) for n in ends))


@pytest.mark.parametrize("kind", NEIGHBOURS[1:])
def test_neighbours_are_there(kind):
    sequences = sequences_of(of("varlen"), CASE.but(neighbours=kind, seed=1))
    theirs = [one for one in sequences if not one.judged]
    assert len(sequences) - len(theirs) == CASE.batch and theirs
    if kind == "empty":  # directly before and behind each judged sequence
        assert [one.judged for one in sequences] == [False, True, False, True, False]
        assert all(0 in one[:2] for one in theirs) and {one.seqlen_q == 0 for one in theirs} == {True, False}
    if kind == "longer":
        assert theirs[0][:2] == (7, 11)


def test_neighbours_have_lengths_that_the_implementation_takes():
    """Only multiples of 8 are accepted, and both lengths are equal."""
    supports = Supports(
        dtypes={torch.float32}, headdims={8}, form="varlen",
        accepts=lambda case: None if case.seqlen_q % 8 == 0 else "multiples of 8 only",
    )  # fmt: skip
    impl = Implementation("tested", lambda *tensors: None, devices={"cpu"}, supports=supports)
    for kind, seed in product(NEIGHBOURS, range(5)):
        case = Case(batch=2, seqlen_q=16, seqlen_k=16, headdim=8, neighbours=kind, seed=seed)
        assert all(one.seqlen_q == one.seqlen_k and one.seqlen_q % 8 == 0 for one in sequences_of(impl, case))


def test_neighbours_of_a_case_with_sinks_have_no_dout():
    """A dsink sums over all sequences of the call."""
    case = CASE.but(neighbours="longer", sinks="count", dlse=True)
    handed = packed(of("varlen"), case, build(case, "cpu"), FILL)
    theirs = handed.plan.q_theirs
    assert len(theirs) and not handed.dout[theirs].any() and not handed.dlse[:, theirs].any() and handed.q[theirs].any()


def test_rows_of_nobody_are_finite_where_that_is_declared():
    case = CASE.but(slack=1)
    for slack, finite in (("finite", True), ("anything", False), ("unseen", False)):
        handed = packed(of("varlen", slack=slack), case, build(case, "cpu"), torch.nan)
        assert bool((handed.q[-1] == LARGE).all()) is finite and bool(handed.q[-1].isnan().all()) is not finite


def test_inputs_of_another_size_have_a_plan_of_their_own():
    x = build(CASE, "cpu")
    part = x.with_(k=x.k[:, :2], v=x.v[:, :2])
    handed = packed(of("varlen"), CASE, part, FILL)
    assert handed.cu_seqlens_k.tolist() == [0, 2, 4] and torch.equal(
        handed.plan.unpack(Outputs(dk=handed.k)).dk, part.k
    )


def test_dense_inputs_are_handed_as_they_are():
    x = build(CASE, "cpu")
    assert packed(of("dense"), CASE, x, FILL) is x


@pytest.mark.parametrize("number", [1, 2, 8])
def test_parts_merge_to_the_whole(number):
    """The parts that a merge gets give the dense answer, empty ones included."""
    impl = of("parts")
    empty = 0
    for seed in range(4):
        case = CASE.but(num_splits=number, seed=seed)
        x = build(case, "cpu")
        handed: Inputs = packed(impl, case, x, FILL)
        assert handed.q is None and handed.out_parts.shape == (number, 2, 3, 4, 8)
        empty += int((handed.lse_parts == -torch.inf).flatten(1).all(1).sum())
        lse = handed.lse_parts.double().logsumexp(0)
        weights = (handed.lse_parts.double() - lse).exp().transpose(-1, -2)[..., None]
        groups = case.nheads // case.nheads_k
        k, v = (t.double().repeat_interleave(groups, 2) for t in (x.k, x.v))
        p = (torch.einsum("bihd,bjhd->bhij", x.q.double(), k) * case.scale).softmax(-1)
        torch.testing.assert_close(
            (weights * handed.out_parts).sum(0), torch.einsum("bhij,bjhd->bihd", p, v), rtol=1e-6, atol=1e-6
        )
    assert empty or number < 8
