"""dq, dk, dv, dbias and dsink are the derivatives of the definition, for any subset of them."""

import torch

from flash_attest.impls.contract.call import gradients_of
from flash_attest.impls.contract.record import GRADIENTS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.limits import short
from flash_attest.properties.checks.comparisons import (
    NEGLIGIBLE,
    check_agree,
    check_budget,
    check_same,
    check_unchanged,
)
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial

MANY = 4100  # terms of a sum: 32 tiles of 128 or more, and part of another


@law(needs=("backward",), bug="backward")
def test_gradients_match_the_definition(trial):
    """dv = P^T dout, dq = softmax_scale dR k, dk = softmax_scale dR^T q, dbias = dS.

    Here dS = P (dP - delta), dP = dout v^T and delta = rowsum(dout * out) - dlse (FA2, Algorithm
    2). dR = dS, times 1 - tanh(R / softcap)^2 with a softcap, where R are the scores before it. The
    gradient of a sink is the sum of -P_sink delta over all queries of its head. Each element is as
    close as rounding allows: docs/why/conventions.md#error-budget. dout is random: with dout = 1
    all rows of dout and of dP are equal, which hides many mistakes.
    """
    got = trial.run(backward=True)
    check_budget(trial, got, None, *(name for name, _ in got.items() if name in GRADIENTS))


def toward_long_sums(case: Case) -> Case:
    """Return the case with one head, and with many keys and few queries, or the reverse."""
    few = 2 + min(case.seqlen_q, case.seqlen_k) % 7
    long = ("seqlen_q", "seqlen_k") if (case.seqlen_q + case.seqlen_k) % 2 else ("seqlen_k", "seqlen_q")
    return case.but(batch=1, nheads=1, nheads_k=1, **dict(zip(long, (MANY, few), strict=True)))


@law(
    needs=("backward", "cross", "not causal"), cross=True, gqa=False, causal=False, bias=False, window=False, hidden=False,
    regime=("mean", "spread"), limited=False,
    dtype=(torch.float16, torch.bfloat16), toward=toward_long_sums, share=0.2, bug="backward",
)  # fmt: skip
def test_gradients_of_long_sums_match_the_definition(trial):
    """dq over 4,100 keys, dk and dv over 4,100 queries are within the error budget.

    Inputs are in a half dtype, and sums should be in float32. Summed from tile to tile in a half
    dtype, the error grows with the number of tiles: within the budget at a hundred keys, and beyond
    it here.
    """
    got = trial.run(backward=True)
    check_budget(trial, got, None, *(name for name, _ in got.items() if name in GRADIENTS))


@law(needs=("backward",), regime=("spread", "mean"), sinks=False, dlse=False, shared_kv=False, bug="backward")
def test_equal_values_give_no_score_gradient(trial):
    """If all keys have the same v, then dq, dk and dbias are 0, up to rounding.

    dP_ij is then the same for all j and equals delta_i, so dS = P (dP - delta) = 0. A delta that is
    missing, scaled or taken from another row does not cancel dP.
    """
    x = trial.x.with_(v=trial.x.v[:, :1].expand_as(trial.x.v).contiguous())
    got = trial.run(x, backward=True)
    check_budget(trial, got, x, *(name for name, _ in got.items() if name in ("dq", "dk", "dbias")))


def _of_the_loss(trial: Trial) -> tuple[str, ...]:
    """Return the inputs that are gradients of the loss: dout, and dlse if it depends on lse."""
    return ("dout",) if trial.x.dlse is None else ("dout", "dlse")


@law(needs=("backward",), bug="backward", share=0.5)
def test_no_dout_gives_no_gradient(trial):
    """With dout = 0 every gradient is exactly 0, as gradients are linear in dout.

    If the loss depends on lse, dlse is 0, too: gradients are linear in both together.
    """
    got = trial.run(trial.zeroed(*_of_the_loss(trial)), backward=True)
    for name, grad in got.items():
        if name in GRADIENTS:
            check_same(trial, name, grad, torch.zeros_like(grad), "with dout = 0 it should be")


@law(
    needs=("backward",), dtype=(torch.float32, torch.bfloat16), regime=("spread", "flat", "mean"), bug="backward",
    share=0.5,
)  # fmt: skip
def test_gradients_scale_with_dout(trial):
    """dout times 2^-40, 2^20 or 2^40 gives the gradients times the same factor, bit for bit.

    Gradients are linear in dout, and powers of two are exact. If the loss depends on lse, dlse gets
    the same factor. Outputs that are not declared repeatable are compared within the budget.
    float16 is left out, as its dS can be subnormal. dout is below 30 in every regime, so only this
    law notices a dout that is clamped or goes through float16.
    """
    x = trial.x
    factor = (2.0**20, 2.0**-40, 2.0**40)[trial.case.seed % 3]
    larger = {name: factor * getattr(x, name) for name in _of_the_loss(trial)}
    plain, scaled = trial.run(backward=True), trial.run(x.with_(**larger), backward=True)
    right, sigma = trial.expected(backward=True)
    for name, grad in plain.items():
        if name not in GRADIENTS:
            continue
        got, should = getattr(scaled, name).double(), factor * grad.double()
        negligible = NEGLIGIBLE * max(1.0, factor)
        got = torch.where((got.abs() < negligible) & (should.abs() < negligible), should, got)
        if name in trial.impl.repeatable:
            check_same(trial, name, got, should, f"with dout times {factor:g} it should be")
        else:
            what = f"with dout times {factor:g}, divided by that, it should be"
            bound = getattr(sigma, name)
            check_agree(trial, name, got / factor, grad.double(), bound, what, right=getattr(right, name))


@law(needs=("backward", "autograd"), bug="backward", share=0.5)
def test_any_subset_of_inputs_may_require_grad(trial):
    """A gradient is the same for any subset of q, k, v, bias and sinks that requires gradients."""
    inputs = gradients_of(trial.impl, trial.x)
    subset = trial.random("subset").number(1, 2 ** len(inputs) - 1)
    names = [name for n, name in enumerate(inputs) if subset >> n & 1]
    wrt = tuple(inputs[name] for name in names)
    got, whole = trial.run(backward=True, wrt=wrt), trial.run(backward=True)
    right, sigma = trial.expected(backward=True)
    for name in names:
        should = f"when only {', '.join(wrt)} require grad it should still be"
        a, b, bound, value = (getattr(each, name) for each in (got, whole, sigma, right))
        check_agree(trial, name, a, b, bound, should, right=value)


@law(needs=("backward", "autograd", "same process"), share=0.2, softmax_scale=False, toward=short, bug="backward")
def test_backward_may_run_twice_on_one_graph(trial):
    """With retain_graph=True a second backward gives the same gradients, or raises an error.

    So the backward may not silently overwrite what the forward keeps, for example P by dS to save
    memory.
    """
    trial.caller.needs_answers()
    usual = trial.run(backward=True)
    again = trial.caller.answer(trial.caller.laid_out(trial.x), backward=True, twice=True)
    trial.needs(again is not None)
    check_unchanged(trial, usual, again, "the second time on one graph; the first time it was")


@law(needs=("backward", "dlse"), dlse=True, bug="backward")
def test_loss_on_out_and_lse(trial):
    """Gradients are those of <dout, out> + <dlse, lse>, in every other case with dout = 0.

    d lse_i / d S_ij = P_ij, so dS = P (dP - rowsum(dout * out) + dlse). With dout = 0, dS is P
    dlse, and dv is 0: a dlse that is dropped, or has the wrong sign, is then all that there is. All
    gradients are within the error budget.
    """
    x = trial.x if trial.case.seed % 2 else trial.zeroed("dout")
    got = trial.run(x, backward=True)
    check_budget(trial, got, x, *(name for name, _ in got.items() if name in GRADIENTS))
