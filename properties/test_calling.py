"""Calls as a model makes them: on the caller's stream, and from autograd."""

import time

import torch

from flash_attest.impls.contract.tensors import Inputs, Outputs, public_input
from flash_attest.properties.calling.meter import MOST_LOOKS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.draws import ANYTHING, PLAIN
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.limits import SHORT, short
from flash_attest.properties.cases.siblings import siblings
from flash_attest.properties.checks.among_others import check_among_others
from flash_attest.properties.checks.comparisons import check_all_agree, check_budget, check_unchanged
from flash_attest.properties.checks.kept_values import kept_values
from flash_attest.properties.checks.outside import all_wrong_outside, also_wrong_outside
from flash_attest.properties.failures import AnotherCase, LawBroken, Reason, Undecided
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial
from flash_attest.races.poison import PATTERNS, leave_behind

DELAY = (0.03, 0.5)  # bounds on how late the inputs are, in seconds: three times the duration of a call, within these
FEW = 20  # keys and queries, where several calls beside a case are longer
CYCLES = 2.0e9  # the most clock cycles of a GPU in a second


def small(case: Case) -> Case:
    """Return the case, shortened, with several batches and heads, so that wrong strides show."""
    return short(case).but(batch=2, nheads=3, nheads_k=3)


@law(needs=("same process",), device="cuda", share=0.3, softmax_scale=False, bug="calling")
def test_work_waits_on_the_current_stream(trial):
    """A call under torch.cuda.stream(s) runs after earlier work on s and before later work on s.

    The earlier work writes the inputs, which hold NaN until then. A kernel on another stream, such
    as the default one with `<<<blocks, threads>>>`, reads them too early. It may also write its
    results too late, which shows if the kernel takes longer than a launch.
    """
    usual, delay = _timed(trial)
    _with_late_inputs(trial, 0.0)  # a rehearsal: in the first call, other streams may wait until its kernels are loaded
    for seconds in (delay, DELAY[1]):
        got, in_time = _with_late_inputs(trial, seconds)
        check_unchanged(trial, usual, got, "on a stream that is busy; on the default stream it was")
        if in_time:
            break


def _with_late_inputs(trial: Trial, seconds: float) -> tuple[Outputs, bool]:
    """Call on a stream that writes the inputs late; return the outputs, and whether it was late.

    The second value is True if all work was launched before the inputs were written. If it is
    False, the call itself waited for its stream, or the host was slow, for example because it
    loaded kernels. Such a call shows nothing.
    """
    stored, launched = trial.caller.stored(trial.x), []
    late = stored.with_(
        **{name: torch.full_like(t, torch.nan if t.is_floating_point() else 0) for name, t in stored.items()}
    )
    written = torch.cuda.Event()
    torch.cuda.synchronize()

    def copied(outputs: Outputs) -> Outputs:
        launched.append(not written.query())
        return outputs.copy()

    # This stream and the default one do not wait for each other. A high priority keeps other work
    # from delaying it.
    with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
        torch.cuda._sleep(int(CYCLES * seconds))
        for name, tensor in late.items():
            tensor.copy_(getattr(stored, name))
        written.record()
        # FillFresh does not work here: it could overwrite memory that another stream already uses.
        leave_behind(PATTERNS[1], trial.device, trial.x.nbytes)
        got = trial.caller.call(late, backward=trial.backward, then=copied)
    return got, all(launched)


@law(needs=("backward", "strides", "dense"), bug="calling", share=0.5)
def test_expanded_dout_equals_its_copy(trial):
    """A dout of stride 0, as out.sum().backward() passes it, gives the gradients of its copy.

    They agree within the budget of both, as another layout may take another code path. With
    strides="last_contiguous" an error is accepted.
    """
    one = trial.x.dout.flatten()[:1]
    x = trial.x.with_(dout=one.expand(trial.x.dout.shape))
    copied = trial.run(x, backward=True)
    handed = trial.caller.stored(x)
    handed = handed.with_(dout=one.expand(handed.dout.shape))
    call = trial.caller.call if FEATURES["layout"].takes(trial.impl.supports, "last_strided") else trial.caller.answer
    expanded = call(handed, backward=True)
    trial.needs(expanded is not None)
    check_all_agree(trial, expanded, copied, trial.expected(x, backward=True), "with a copy of dout it is")


@law(needs=("strides", "dense"), share=0.2, toward=small, gqa=False, bug="calling")
def test_expanded_inputs_equal_their_copy(trial):
    """k.expand(b, s, h, d), one head in memory for all, gives the results of its copy.

    The stride of the heads is then 0. v and a bias are expanded in the same way. In other cases
    every input has a single batch in memory; dout, as the gradient of a mean over queries, and the
    bias then also have a single row for all queries. Results agree within the budget of both, as
    another layout may take another code path. An error is accepted.
    """
    trial.caller.needs_answers()
    seqlen, heads = (2, 1) if trial.impl.layout == "bhsd" else (1, 2)
    stored = trial.caller.stored(trial.x)
    if trial.case.seed % 2:
        one = {"q": stored.q[:1], "k": stored.k[:1], "v": stored.v[:1], "dout": stored.dout.narrow(seqlen, 0, 1)[:1]}
        one |= {} if stored.bias is None else {"bias": stored.bias[:1, :, :1]}
    else:
        one = {"k": stored.k.narrow(heads, 0, 1)[:1], "v": stored.v.narrow(heads, 0, 1)[:1]}
        one |= {} if stored.bias is None else {"bias": stored.bias[:1, :1]}
    expanded = stored.with_(**{name: tensor.expand_as(getattr(stored, name)) for name, tensor in one.items()})
    x = Inputs(**{name: public_input(trial.impl, name, tensor) for name, tensor in expanded.items()})
    x = x.with_(**{name: getattr(x, name).contiguous() for name in one})
    copied = trial.run(x, backward=trial.backward)
    got = trial.caller.answer(expanded, backward=trial.backward)
    trial.needs(got is not None)
    expected = trial.expected(x, backward=trial.backward)
    check_all_agree(trial, got, copied, expected, f"with copies of {', '.join(one)} it is")


@law(
    needs=("same process", "dense"), cross=False, gqa=False, headdim_v=False, share=0.1, softmax_scale=False, toward=short,
    bug="calling",
)  # fmt: skip
def test_one_tensor_may_be_q_k_and_v(trial):
    """attention(x, x, x) gives the results of attention on three copies of x.

    q, k and v each get their own gradient.
    """
    x, backward = trial.x.with_(k=trial.x.q.clone(), v=trial.x.q.clone()), trial.backward
    copied = trial.run(x, backward=backward)
    stored = trial.caller.stored(x)
    got = trial.caller.call(stored.with_(k=stored.q, v=stored.q), backward=backward)
    check_unchanged(trial, copied, got, "with one tensor as q, k and v; with copies it is", x)


@law(share=0.2, softmax_scale=False, toward=short, bug="calling")
def test_answers_follow_the_values(trial):
    """Results depend on the values of the inputs, not on their addresses or identities.

    So no result may be cached by address, shape or identity. Equal values at other addresses give
    the same bits, or agree within the budget if they are not declared repeatable. New values in the
    same tensors give new results, within the error budget. So do new tensors over the same memory.
    Each counts its own changes, from 0, as a tensor does that gets the memory of a freed one.
    """
    caller, backward = trial.caller, trial.backward
    # Equal values at other addresses.
    memory, _ = caller.place(trial.x, 0.0)
    handed = _new_tensors(memory)
    first = caller.copied(caller.call(handed, backward=backward))
    others, _ = caller.place(trial.x, 0.0, away_from=handed)
    elsewhere = caller.call(others, backward=backward)
    check_unchanged(trial, first, elsewhere, "at other addresses; at the first addresses it was")
    # New values in the same tensors, then in new tensors at their addresses.
    for n, where_to in enumerate(("the same tensors", "new tensors at the same addresses"), start=1):
        new = build(trial.case.but(seed=trial.case.seed + n), trial.device)
        handed = handed if n == 1 else _new_tensors(memory)
        stored = caller.stored(new)
        for name, tensor in (handed if n == 1 else memory).items():
            tensor.copy_(getattr(stored, name))
        got = caller.call(handed, backward=backward)
        try:
            check_budget(trial, got, new)
        except LawBroken as broken:
            raise kept_values(trial, broken, first, got, new, handed, where_to) from None


def _new_tensors(memory: Inputs) -> Inputs:
    """Return new tensors over the same memory. Each has a version counter of its own, at 0."""
    return memory.with_(**{name: tensor.data for name, tensor in memory.items()})


def few(case: Case) -> Case:
    """Return the case with short lengths, one batch and one key head, as some calls are larger, and
    with the default scale, as one has another.
    """
    lengths = {"seqlen_q": min(case.seqlen_q, FEW), "seqlen_k": min(case.seqlen_k, FEW)}
    return case.but(batch=1, nheads=min(case.nheads // case.nheads_k, 2), nheads_k=1, softmax_scale=None, **lengths)


@law(toward=few, share=0.1, bug="calling")
def test_other_calls_do_not_matter(trial):
    """Calls with other lengths, sizes or features, before a call, do not change its result.

    Each of them differs from the case in one thing: it has one query, half of the keys or more
    keys, more batches or heads, or another dtype, mask, scale, layout or head dim. Shorter ones
    come before the case, the longest last, and then the case comes again. All results are within
    the error budget. So a kernel, a plan or a tuned choice is kept under a key with everything that
    it depends on, and a workspace fits later calls and holds nothing of earlier ones. A result that
    is wrong in a new process, too, is left to other laws. A given case is called among all such
    calls, and a drawn one among some.
    """
    meter = trial.meter
    turn = None if trial.given or meter.depends_on_others else meter.cases + meter.looks  # a smaller case has all
    check_among_others(trial, siblings(trial.impl, trial.case, turn))


def several(case: Case) -> Case:
    """Return the case with several queries, keys, batches and heads."""
    return case.but(batch=2, seqlen_q=SHORT, seqlen_k=SHORT, nheads=2, nheads_k=2)


@law(needs=("same process",), new_process=True, once=True, toward=several, gqa=False, **PLAIN, bug="calling")
def test_first_call_decides_nothing(trial):
    """A process whose first call has a single query and key is right for other sizes, too.

    Triton compiles an argument of 1 in as a constant, and a kernel may be kept for all later calls.
    Other laws would not see it: their calls come after those of the contract check, which are
    longer. So this one is judged in a process that has made no call. The first call has one batch,
    head, query and key; then comes a call with several of each, twice. A result that is wrong in a
    new process without the first call, too, is left to other laws.
    """
    try:
        one = fitted(trial.impl, trial.case.but(batch=1, seqlen_q=1, seqlen_k=1, nheads=1, nheads_k=1), ANYTHING)
    except AnotherCase:
        one = trial.case
    trial.needs(one.products < trial.case.products)
    check_among_others(trial, [one])


@law(needs=("backward", "same process"), share=0.2, softmax_scale=False, toward=short, bug="calling")
def test_backward_belongs_to_its_own_forward(trial):
    """Gradients do not change if another call runs between a forward and its backward.

    In a model all forwards run before the first backward: forward(x), forward(y), backward(y),
    backward(x). So a later forward must not overwrite what an earlier one keeps.
    """
    usual, caller = trial.run(backward=True), trial.caller
    handed = caller.laid_out(trial.x)
    other = caller.laid_out(build(trial.case.but(seed=trial.case.seed + 1), trial.device))
    got = caller.copied(caller.call(handed, backward=True, between=lambda: caller.call(other, backward=True)))
    check_unchanged(trial, usual, got, "with another call between its forward and its backward; without, it was")


@law(
    needs=("outside", "dense"),
    gqa=False,
    **PLAIN,
    regime=("spread",),
    softmax_scale=False,
    share=0.1,
    toward=small,
    last=True,
    bug="calling",
)
def test_calls_outside_the_promise_raise_or_are_right(trial):
    """A call outside of `supports` raises an error or gives the right answer.

    It never gives a wrong answer without an error, and after an error the inputs are bit for bit as
    before, so that the caller can go on with them. Each call differs from a supported case in one
    way. It has a head dim, dtype, layout or number of key heads that is not declared, lengths that
    `accepts` refuses, q, k and v that do not fit together, or a bias of the wrong shape. If the
    supported case itself is wrong, other laws report it, and this one says nothing.
    """
    worst_z, wrong = dict(trial.meter.worst_z), all_wrong_outside(trial)
    first = next(wrong, None)
    supported_is_wrong = first is not None and trial.caller.device_works() and not _is_right_if_supported(trial)
    trial.meter.worst_z = worst_z  # leave out the errors of calls outside, which were compared with both alignments
    if first is None:
        return
    if supported_is_wrong:
        trial.meter.looks += 1
        if not trial.meter.cases and trial.meter.looks == MOST_LOOKS:
            raise Undecided("supported calls are wrong, too: other laws say how", Reason.WRONG_ALREADY)
        trial.needs(False)
    probe, broken = first
    raise LawBroken(
        f"called with {probe.what}, {broken.headline}",
        *broken.observed,
        investigate=lambda: ("", also_wrong_outside(trial, probe)),
        part=probe.kind,
    )


def _is_right_if_supported(trial: Trial) -> bool:
    """Return whether the supported case itself is right."""
    try:
        check_budget(trial, trial.run(backward=trial.backward))
    except LawBroken:
        return False
    return True


def _timed(trial: Trial) -> tuple[Outputs, float]:
    """Return the outputs of a second call, and by how many seconds to delay the inputs.

    The first call is not timed, as it may compile.
    """
    for _ in range(2):
        started = time.perf_counter()
        outputs = trial.run(backward=trial.backward)
    least, most = DELAY
    return outputs, min(most, max(least, 3 * (time.perf_counter() - started)))
