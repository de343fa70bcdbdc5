"""Memory around inputs is not read or written, and the content of fresh memory does not matter."""

import time
from functools import partial

import torch

from flash_attest.impls.contract.call import public_outputs
from flash_attest.impls.contract.heads import order_of, usual
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs, Outputs, from_layout, public_input
from flash_attest.properties.cases.beyond_32_bits import batches_to_look_at, enlarged, inputs_of
from flash_attest.properties.cases.case import BIASES, LAYOUTS, Case
from flash_attest.properties.cases.draws import PLAIN
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.layouts import DENSE, Placed
from flash_attest.properties.cases.limits import short
from flash_attest.properties.cases.sparse_memory import spread
from flash_attest.properties.cases.telling import of_several, telling
from flash_attest.properties.checks.comparisons import all_same, check_all_agree, check_budget, check_unchanged
from flash_attest.properties.checks.pictures import element_at, number, plural, share, where
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.law import law
from flash_attest.properties.machine.gpu_memory import first_that_fits
from flash_attest.properties.trial import Expected, Trial
from flash_attest.races.bits import bits
from flash_attest.races.poison import PATTERNS, poisoned

PAUSE = 0.05  # seconds to wait for work that continues after a call
AROUND = 7.0  # a harmless value to compare with NaN


@law(layout=LAYOUTS, bias=BIASES, toward=telling, bug="memory")
def test_memory_around_inputs_is_not_read(trial):
    """NaN before, after and between the rows of every input gives the same outputs as 7 does.

    0 * NaN is NaN, so this also shows padding that is read and masked only after the load.
    """
    _same_however(trial, lambda backward: [_run_amid(trial, fill, backward) for fill in (AROUND, torch.nan)],
                  "with NaN around the inputs; with 7 there it is")  # fmt: skip


@law(needs=("shared memory",), layout=LAYOUTS, bias=BIASES, toward=telling, bug="memory")
def test_inputs_come_back_unchanged(trial):
    """A call changes no bit of its inputs, nor of the 256 elements before and after each."""
    handed, placed = trial.caller.place(trial.x, torch.nan)
    trial.caller.call(handed, backward=trial.backward)
    if all_same([(bits(there.buffer), there.after) for there in placed.values()]):
        return
    if "v" in placed and placed["v"].buffer is placed["k"].buffer:
        del placed["v"]
    changes = [_written(trial, name, there) for name, there in placed.items() if there.written()]
    (headline, elements), *others = changes
    raise LawBroken(headline, elements, *(other for other, _ in others), findings=[each for each, _ in changes])


def _written(trial: Trial, name: str, there: Placed) -> tuple[str, str]:
    """Return what was written to an input or around it, and where."""
    impl, case, form = trial.impl, trial.case, trial.impl.supports.form
    order = order_of(impl, case.nheads, case.nheads_k)

    changed, now, left = (
        usual(order, {name: public_input(impl, name, tensor)})[name]
        for tensor in (there.changed(), there.tensor, there.left())
    )
    if not bool(changed.any()):
        return (
            f"{plural(there.written(), 'element')} around {name} (margins, gaps between rows) changed in the call",
            "",
        )
    at = tuple(int(i) for i in changed.nonzero()[0])
    element, is_now, should = element_at(name, at, form), now[at].item(), left[at].item()
    is_now, should = number(is_now, should), number(should, is_now)
    if case.append and name in ("k", "v"):  # what should be there need not have been there before
        headline = f"{element} is {is_now} after the call, should be {should} ({share(changed)} wrong)"
        return headline, where(trial, name, changed, form=form)
    headline = f"{element} changed from {should} to {is_now} during the call ({share(changed)} changed)"
    return headline, where(trial, name, changed, "changed", form)


@law(layout=LAYOUTS[1:], bias=BIASES, needs=("strides",), toward=telling, bug="calling")
def test_any_layout_equals_the_contiguous_one(trial):
    """The memory layout of q, k, v and dout changes no result.

    They may be transposed, packed into one tensor, have gaps or strides, or begin at an address
    that is not a multiple of 16 bytes. A dimension of size 1 may have any stride. Results agree
    within the budget of both, as another layout may take another code path.
    """
    backward = trial.backward
    got, plain = trial.run(backward=backward), trial.run(backward=backward, layout="contiguous")
    _check_all_agree(trial, got, plain, trial.expected(backward=backward), "with contiguous inputs it is")


@law(
    needs=("same process", "strides"),
    seqlen_q=(1, 70),
    seqlen_k=(1, 70),
    share=0.5,
    toward=of_several,
    bug="boundaries",
)
def test_offsets_need_64_bits(trial):
    """Elements 2^32 elements after the first, as in a large key cache, are addressed correctly.

    One dimension at a time is spread that far in every input, in sparse memory. The memory between
    rows holds 0, so an offset that is cut to 32 bits reads 0 or another element. Results agree
    within the budget of both, as for other layouts. An error is accepted: an implementation may
    refuse a stride that is too large.
    """
    backward, stored, answered = trial.backward, trial.caller.stored(trial.x), 0
    plain = trial.run(backward=backward)
    expected = trial.expected(backward=backward)
    spreads = {name: tensor for name, tensor in stored.items() if name not in DENSE}
    for dim in range(3):
        rows = {name: tensor for name, tensor in spreads.items() if dim < tensor.dim() - 1}
        if any(tensor.shape[dim] > 1 for tensor in rows.values()):
            far = stored.with_(**{name: spread(tensor, dim) for name, tensor in rows.items()})
            if (got := trial.caller.answer(far, backward=backward)) is not None:
                _check_all_agree(
                    trial, got, plain, expected, f"where dimension {dim} of the inputs is not spread it is"
                )
                answered += 1
    trial.needs(answered > 0)


@law(
    needs=("same process", "dense", "own v"),
    device="cuda",
    share=0.03,
    shared_kv=False,
    gqa=False,
    bias=False,
    softmax_scale=False,
    **PLAIN,
    regime=("spread",),
    bug="boundaries",
)
def test_tensors_beyond_2_31_elements(trial):
    """Contiguous q, k and v of more than 2^31 elements each give results within the error budget.

    The first batch, the last, and the batches in which 32-bit offsets overflow are checked. This
    also covers kernels that take only contiguous tensors, and outputs of that size. If the GPU has
    too little memory for the backward, the forward is judged alone.
    """
    large = enlarged(trial.impl, trial.case)
    trial.needs(large is not None)
    numbers = batches_to_look_at(large)
    sizes = f"batch={large.batch} seqlen={large.seqlen_q} nheads={large.nheads} headdim={large.headdim} {large.dtype}"

    def called(backward: bool) -> tuple[Outputs, list[Inputs]]:
        trial.write_down(sizes)  # in case the process dies
        x = inputs_of(large, trial.impl.layout, trial.device)
        with trial.caller.may_begin_again():
            got = trial.caller.call(x, backward=backward, then=lambda outputs: _batches(outputs, numbers))
        public = [(name, from_layout(trial.impl, tensor)) for name, tensor in x.items()]
        return got, [Inputs(**{name: tensor[b : b + 1].clone() for name, tensor in public}) for b in numbers]

    backwards = [True, False] if trial.backward else [False]
    try:
        number, (got, parts) = first_that_fits(sizes, [partial(called, backward) for backward in backwards])
    except LawBroken as broken:
        broken.headline += f"; called with {sizes}"
        raise
    if number > 0:
        trial.meter.note = "the forward alone: the GPU has too little memory for the backward"
    for n, (b, part) in enumerate(zip(numbers, parts, strict=True)):
        try:
            check_budget(trial, _batches(got, [n]), part)
        except LawBroken as broken:
            broken.headline += f"; b=0 is batch {b} of a call with {sizes}"
            raise


def _batches(outputs: Outputs, numbers: list[int]) -> Outputs:
    """Return copies of these batches of the outputs."""
    return Outputs(**{name: tensor[numbers].clone() for name, tensor in outputs.items()})


@law(bug="memory")
def test_what_memory_held_before_does_not_matter(trial):
    """The outputs do not depend on the content of fresh memory: huge numbers, NaN, or 0.

    So every output element is written, and no scratch memory is assumed to be clean.
    """

    def results(backward: bool):
        got = []
        for pattern in PATTERNS:
            with poisoned(pattern, trial.device, trial.x.nbytes):
                got.append(trial.run(backward=backward))
        return got

    _same_however(trial, results, "where fresh memory held other bits; before that it was")


@law(needs=("shared memory",), share=0.1, softmax_scale=False, toward=short, bug="memory")
def test_outputs_stay_as_they_were_returned(trial):
    """Once a call has returned, neither later work nor the next call changes its outputs.

    Each output is copied at once, on the current stream. It is compared with the copy after a
    pause, in which a thread or another stream may still write, and again after a call with other
    inputs of the same sizes.
    """
    at_once, handed = [], trial.caller.stored(trial.x)
    public = partial(public_outputs, trial.impl, handed)  # of what the returned memory holds now

    def copied(outputs: Outputs) -> Outputs:
        at_once.append(public(outputs).copy())
        return outputs

    with trial.caller.looking_again() as look_again:
        got = trial.caller.call(handed, backward=trial.backward, then=copied, as_returned=True)
        time.sleep(PAUSE)
        look_again()
        why = (
            "work that continues after the call has returned: a thread, or a stream that the current one does not await"
        )
        _check_kept(trial, at_once[0], public(got), f"{PAUSE:g} s later", why)
        trial.run(build(trial.case.but(seed=trial.case.seed + 1), trial.device), backward=trial.backward)
        look_again()
        _check_kept(trial, at_once[0], public(got), "after another call", "an output buffer that the next call reuses")


def _one_key(impl: Implementation) -> list[Case]:
    """Return the plainest case of one query and one key, where out has the values of v."""
    s = impl.supports
    dtype = FEATURES["dtype"].drawn(s, None)[0]
    return [Case(headdim=s.headdim_list[0], dtype=dtype, causal=s.causal == "always")]


@law(needs=("same process",), share=0.1, softmax_scale=False, toward=short, chosen=_one_key, bug="memory")
def test_outputs_may_be_written_to(trial):
    """The caller may write to an output without changing an input, another output, or a later call.

    So out must not be v itself if there is one key, dv must not be dout, and a cached constant must
    not be returned. An output with stride 0, which cannot be written to, is left out.
    """
    handed = trial.caller.stored(trial.x)
    got = trial.caller.call(handed, backward=trial.backward, as_returned=True)
    public = partial(public_outputs, trial.impl, handed)  # without rows that belong to no sequence
    first, unwritten = public(got).copy(), dict(got.items())
    inputs = handed.with_(**{name: tensor.clone() for name, tensor in handed.items()})
    for name, tensor in got.items():
        del unwritten[name]
        if 0 in tensor.stride():
            continue
        tensor.fill_(AROUND)
        rest = public(Outputs(**unwritten))
        others = [(other, t, getattr(first, other)) for other, t in rest.items()]
        for other, now, before in others + [(n, t, getattr(inputs, n)) for n, t in handed.items()]:
            if bool((changed := _changed(now, before)).any()):
                raise LawBroken(
                    f"{name} shares memory with {other}: what the caller writes to {name} changes {other} "
                    f"({share(changed)})",
                    suggests=f"a view of {other} is returned: return a copy",
                )
    check_unchanged(
        trial, first, trial.run(backward=trial.backward), "after the caller wrote to the outputs; before it was"
    )


def _changed(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return which elements have changed their bits."""
    return bits(now.contiguous()) != bits(before.contiguous())


def _check_kept(trial: Trial, before: Outputs, now: Outputs, when: str, why: str) -> None:
    """Raise LawBroken unless all outputs have the bits that they had when the call returned."""
    for name, tensor in now.items():
        was = getattr(before, name)
        changed = _changed(tensor, was)
        if bool(changed.any()):
            at = tuple(int(i) for i in changed.nonzero()[0])
            raise LawBroken(
                f"{element_at(name, at)} is {number(tensor[at].item())} {when}, was {number(was[at].item())} when the call "
                f"returned ({share(changed)} changed)",
                where(trial, name, changed),
                suggests=why,
            )


def _check_all_agree(trial: Trial, got: Outputs, plain: Outputs, expected: Expected, should: str) -> None:
    """Check that results agree, except in elements that are NaN in `plain`.

    Other laws find these. The layout has not caused them.
    """
    got, plain = (
        Outputs(**{name: x.masked_fill(getattr(plain, name).isnan(), 0.0) for name, x in outputs.items()})
        for outputs in (got, plain)
    )
    check_all_agree(trial, got, plain, expected, should)


def _run_amid(trial: Trial, fill: float, backward: bool):
    handed, _ = trial.caller.place(trial.x, fill)
    return trial.caller.call(handed, backward=backward)


def _same_however(trial: Trial, results, should: str) -> None:
    backward = trial.backward
    first, *others = results(backward)
    for other in others:
        check_unchanged(trial, first, other, should)
