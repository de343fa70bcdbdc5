"""A kernel whose query head h reads key head h % nheads_k is right in each form, if it says so."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import python_tiled, python_tiled_cache, python_tiled_padded, python_tiled_paged
from flash_attest.impls import python_tiled_varlen as varlen
from flash_attest.impls.contract.heads import DIMENSION, order_of, ordered, usual
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.checks.comparisons import check_budget
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.trial import Trial
from tests.trials import implementation

DENSE = "batch=2 seqlen_q=5 seqlen_k=27 nheads=6 nheads_k=3 headdim=8 dtype=float32 sinks=spread"
CALLS = {
    "dense": (python_tiled, f"{DENSE} dlse=True bias=matrix bias_nheads=6 bias_batch=2"),
    "block mask": (python_tiled, f"{DENSE} hidden=documents hidden_block=8:24"),
    "bhsd": (python_tiled, DENSE),
    "varlen": (varlen, f"{DENSE} dlse=True neighbours=mixed slack=17"),
    "padded": (python_tiled_padded, f"{DENSE} dlse=True neighbours=mixed slack=17"),
    "cache": (python_tiled_cache, f"{DENSE} neighbours=mixed append=5"),
    "paged": (python_tiled_paged, f"{DENSE} neighbours=mixed append=5 num_splits=2"),
}


def with_heads_modulo(impl, **declared):
    """Return a kernel that repeats k and v with torch.repeat: head h is head h % nheads_k."""

    def repeated(x, group):
        return x.repeat(*(1,) * (x.dim() - 2), group, 1)

    def forward(q, k, v, **keywords):
        group = q.shape[-2] // max(k.shape[-2], 1)
        new = {name: x for name in ("k_new", "v_new") if (x := keywords.get(name)) is not None}
        many = {"k": repeated(k, group), "v": repeated(v, group)}
        result = impl.forward(q, *many.values(), **keywords | {name: repeated(x, group) for name, x in new.items()})
        if new:  # they were written into copies
            k.copy_(many["k"][..., : k.shape[-2], :])
            v.copy_(many["v"][..., : v.shape[-2], :])
        return result

    def backward(dout, q, k, v, out, lse, **keywords):
        group = q.shape[-2] // max(k.shape[-2], 1)
        dq, dk, dv, *more = impl.backward(dout, q, repeated(k, group), repeated(v, group), out, lse, **keywords)
        return dq, *(x.unflatten(-2, (group, -1)).sum(-3) for x in (dk, dv)), *more

    functions = dict(forward=forward, backward=backward if impl.backward else None)
    return replace(impl, name="modulo", **functions, **dict(gqa_order="modulo") | declared)


def turned(impl):
    """Return the same kernel in layout "bhsd"."""

    def swapped(function):
        def call(*tensors, **keywords):
            public = [x.transpose(1, 2) if x.dim() == 4 else x for x in tensors]
            return tuple(x.transpose(1, 2) if x.dim() == 4 else x for x in function(*public, **keywords))

        return call

    return replace(impl, forward=swapped(impl.forward), backward=swapped(impl.backward), layout="bhsd")


@pytest.mark.parametrize("call", CALLS)
def test_results_are_right_in_the_declared_order_alone(call):
    module, case = CALLS[call]
    impl = with_heads_modulo(module.IMPL)
    impl = turned(impl) if call == "bhsd" else impl
    for order in ("modulo", "blocks"):
        trial = Trial(replace(impl, gqa_order=order), parse_case(case), "cpu")
        got = trial.run(backward=trial.backward)
        if order == "modulo":
            check_budget(trial, got)
        else:
            with pytest.raises(LawBroken):
                check_budget(trial, got)


PLACES = torch.tensor([0, 3, 1, 4, 2, 5])  # of 6 query heads: at these places they read key heads 0 1 0 1 0 1
SIZES = {
    "k": (1, 5, 2, 4), "v": (1, 5, 2, 4), "kv_indices": (1, 3, 2, 5), "lse": (1, 6, 3), "dlse": (1, 6, 3),
    "bias": (1, 6, 3, 5), "dbias": (1, 6, 3, 5), "sinks": (6,), "dsink": (6,), "block_mask": (1, 6, 1, 1),
}  # fmt: skip


def of_fields(record, tensors):
    return record(**{name: tensor for name, tensor in tensors.items() if name in record.__dataclass_fields__})


def test_every_tensor_with_query_heads_is_permuted_and_comes_back():
    impl = implementation(gqa_order="modulo")
    order = order_of(impl, 6, 2)
    assert torch.equal(order, PLACES)
    tensors = {name: torch.randn(SIZES.get(name, (1, 3, 6, 4))) for name in (*DIMENSION, "k", "v", "kv_indices")}
    theirs = {
        name: tensor.index_select(DIMENSION[name], PLACES) if name in DIMENSION else tensor
        for name, tensor in tensors.items()
    }
    for name, tensor in ordered(impl, of_fields(Inputs, tensors)).items():
        assert torch.equal(tensor, theirs[name]), name
    for name, tensor in usual(order, of_fields(Outputs, theirs)).items():
        assert torch.equal(tensor, tensors[name]), name


@pytest.mark.parametrize("heads", [(4, 4), (4, 1), (4, 3), (3, 4)])  # the last two: a call outside of the contract
def test_orders_are_one_without_groups(heads):
    assert order_of(implementation(gqa_order="modulo"), *heads) is None


@pytest.mark.parametrize(
    "declared, other, reads", [("blocks", "modulo", "h % nheads_k"), ("modulo", "blocks", "h // (")]
)
def test_the_contract_check_names_the_other_order(declared, other, reads):
    impl = with_heads_modulo(python_tiled.IMPL, gqa_order=declared) if other == "modulo" else python_tiled.IMPL
    plain = replace(impl.supports, bias="none", bias_grad=False, window="none", softcap=False, sinks=False)
    plain = replace(plain, sink_grad=False, hidden="none", softmax_scale=False, causal="never", lse_grad=False)
    few = replace(impl, name="tested", gqa_order=declared, supports=plain)
    outcome = conformance.tried(few, Plan())
    (problem,) = outcome.problems
    assert problem.startswith(f"out, lse, dq, dk and dv are right if query head h reads key head {reads}")
    assert f'declare gqa_order="{other}"' in problem and outcome.without == "nheads_k < nheads"
    assert conformance.tried(replace(few, name="declared", gqa_order=other), Plan()).problems == []
