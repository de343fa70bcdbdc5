"""Calls as a model makes them: on a stream of the caller's, and from autograd."""

import time

import torch

from flash_attest.impls.contract.call import Inputs, Outputs, from_layout
from flash_attest.properties.calling.meter import MOST_LOOKS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.outside import probes
from flash_attest.properties.cases.strategies import short
from flash_attest.properties.checks.comparisons import check_all_agree, check_budget, check_unchanged
from flash_attest.properties.checks.outside import wrong_outside
from flash_attest.properties.failures import LawBroken, Reason, Undecided
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial
from flash_attest.races.poison import PATTERNS, leave_behind

DELAY = (0.03, 0.5)  # seconds by which the inputs are late: three times what a call takes, within these bounds
CYCLES = 2.0e9  # clock cycles of a GPU in a second, at most


def small(case: Case) -> Case:
    """The case with more than one batch and head, so that wrong strides show, and short."""
    return short(case).but(batch=2, nheads=3, nheads_k=3)


@law(needs=("same process",), device="cuda", share=0.3, softmax_scale=False, bug="calling")
def test_work_waits_on_the_current_stream(trial):
    """Under torch.cuda.stream(s) a call runs after earlier work on s, which may write its inputs, and before later work.

    The inputs hold NaN until s writes them. A kernel launched on another stream, such as the default one with
    `<<<blocks, threads>>>`, reads them too early. It may also write too late, which shows if it takes longer than a launch.
    """
    usual, delay = _timed(trial)
    _with_late_inputs(trial, 0.0)  # rehearsed: the first time, other streams may wait for its kernels to be loaded
    for seconds in (delay, DELAY[1]):
        got, in_time = _with_late_inputs(trial, seconds)
        check_unchanged(trial, usual, got, "on a stream that is busy; on the default stream it was")
        if in_time:
            break


def _with_late_inputs(trial: Trial, seconds: float) -> tuple[Outputs, bool]:
    """The outputs on a stream that writes the inputs so much later; whether all was launched before they were there.

    If not, the call waits for its stream, or the host was slow, as when kernels are loaded: then it shows nothing.
    """
    stored, launched = trial.caller.stored(trial.x), []
    late = Inputs(**{name: torch.full_like(tensor, torch.nan) for name, tensor in stored.items()})
    written = torch.cuda.Event()
    torch.cuda.synchronize()

    def copied(outputs: Outputs) -> Outputs:
        launched.append(not written.query())
        return outputs.copy()

    # This stream and the default one do not wait for each other. A high priority keeps other work from delaying it.
    with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
        torch.cuda._sleep(int(CYCLES * seconds))
        for name, tensor in late.items():
            tensor.copy_(getattr(stored, name))
        written.record()
        # FillFresh does not work here: it could overwrite memory that another stream already uses.
        leave_behind(PATTERNS[1], trial.device, trial.x.nbytes)
        got = trial.caller.call(late, backward=trial.backward, then=copied)
    return got, all(launched)


@law(needs=("backward", "strides"), bug="calling", share=0.5)
def test_expanded_dout_equals_its_copy(trial):
    """out.sum().backward() passes dout as one number with stride 0 everywhere: the gradients are those of its copy.

    Within the budget of both, as another layout may take another path. With strides="last_contiguous" an error is accepted.
    """
    one = trial.x.dout.flatten()[:1]
    x = trial.x.with_(dout=one.expand(trial.x.dout.shape))
    copied = trial.run(x, backward=True)
    handed = trial.caller.stored(x)
    handed = handed.with_(dout=one.expand(handed.dout.shape))
    call = trial.caller.call if FEATURES["layout"].takes(trial.impl.supports, "last_strided") else trial.caller.answer
    expanded = call(handed, backward=True)
    trial.needs(expanded is not None)
    budget = trial.budget(trial.want(x, backward=True), x, backward=True)
    check_all_agree(trial, expanded, copied, budget, "with a copy of dout it is")


@law(needs=("strides",), share=0.2, toward=small, gqa=False, bug="calling")
def test_expanded_inputs_equal_their_copy(trial):
    """k.expand(b, s, h, d) has one head in memory for all of them, with stride 0: out and gradients are those of its copy.

    So with v and a bias. Or one batch for all, in every input, with one row of dout (as the mean over queries has it) and of
    the bias. Within the budget of both, as another layout may take another path. An error is accepted.
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
    x = Inputs(**{n: t if n == "bias" else from_layout(trial.impl, t) for n, t in expanded.items()})
    x = x.with_(**{name: getattr(x, name).contiguous() for name in one})
    copied = trial.run(x, backward=trial.backward)
    got = trial.caller.answer(expanded, backward=trial.backward)
    trial.needs(got is not None)
    budget = trial.budget(trial.want(x, backward=trial.backward), x, backward=trial.backward)
    check_all_agree(trial, got, copied, budget, f"with copies of {', '.join(one)} it is")


@law(needs=("same process",), cross=False, gqa=False, share=0.1, softmax_scale=False, toward=short, bug="calling")
def test_one_tensor_may_be_q_k_and_v(trial):
    """attention(x, x, x) is what it is with three copies of x, and each of q, k and v has a gradient of its own."""
    x, backward = trial.x.with_(k=trial.x.q.clone(), v=trial.x.q.clone()), trial.backward
    copied = trial.run(x, backward=backward)
    stored = trial.caller.stored(x)
    got = trial.caller.call(stored.with_(k=stored.q, v=stored.q), backward=backward)
    check_unchanged(trial, copied, got, "with one tensor as q, k and v; with copies it is", x)


@law(share=0.2, softmax_scale=False, toward=short, bug="calling")
def test_answers_follow_the_values(trial):
    """The values of the inputs decide, not their addresses, shapes or identities: nothing may be kept by these.

    Equal values at other addresses give the same bits (within the budget where not declared repeatable). New values in the
    same tensors, written in place, give their own answer, within the error budget.
    """
    caller, backward = trial.caller, trial.backward
    handed, _ = caller.place(trial.x, 0.0)
    first = caller.call(handed, backward=backward).copy()
    others, _ = caller.place(trial.x, 0.0, away_from=handed)
    elsewhere = caller.call(others, backward=backward)
    check_unchanged(trial, first, elsewhere, "at other addresses; where the same values lay before, it was")
    new = build(trial.case.but(seed=trial.case.seed + 1), trial.device)
    for name, tensor in handed.items():
        tensor.copy_(caller.as_stored(name, getattr(new, name)))
    second = caller.call(handed, backward=backward)
    try:
        check_budget(trial, second, new)
    except LawBroken as broken:
        as_before = [name for name, tensor in second.items() if torch.equal(tensor, getattr(first, name))]
        kept = [name for name in as_before if _is_wrong(trial, second, new, name)]  # not a 0 that is right both times
        if not kept:
            check_budget(trial, first)  # what is wrong with any values follows them
        suggests = "a result, or part of one, that is kept by the address, the shape or the identity of an input"
        if kept:
            then = f"{', '.join(kept)} {'is' if len(kept) == 1 else 'are'} as before"
        elif _is_wrong(trial, caller.call(caller.place(new, 0.0, away_from=handed)[0], backward=backward), new):
            then = "elsewhere they give this, too"
            suggests = (
                "a result that is wrong for these values: the other laws say more; or part of one, kept by the shape"
            )
        else:
            then = "it was right before"
        raise LawBroken(
            f"{broken.headline}; new values were written into the same tensors, and {then}",
            *broken.observed,
            suggests=suggests,
        ) from None


def _is_wrong(trial: Trial, got: Outputs, x: Inputs, *names: str) -> bool:
    try:
        check_budget(trial, got, x, *names)
    except LawBroken:
        return True
    return False


@law(needs=("backward", "same process"), share=0.2, softmax_scale=False, toward=short, bug="calling")
def test_backward_belongs_to_its_own_forward(trial):
    """In a model all forwards run before the first backward: forward(x), forward(y), backward(y), backward(x).

    The gradients for x are those that a backward right after its forward gives: what the forward keeps belongs to its call.
    """
    usual, caller = trial.run(backward=True), trial.caller
    handed = caller.laid_out(trial.x)
    other = caller.laid_out(build(trial.case.but(seed=trial.case.seed + 1), trial.device))
    got = caller.call(handed, backward=True, between=lambda: caller.call(other, backward=True)).copy()
    check_unchanged(trial, usual, got, "with another call between its forward and its backward; without, it was")


@law(
    needs=("outside",),
    gqa=False,
    regime=("spread",),
    softmax_scale=False,
    share=0.1,
    toward=small,
    last=True,
    bug="calling",
)
def test_calls_outside_the_promise_raise_or_are_right(trial):
    """A call outside of `supports` gives an error, or the right answer: never a wrong one without an error.

    Each call differs from a promised case in one thing: a head dim, dtype, layout or number of key heads that is not
    declared, lengths that `accepts` refuses, q, k and v that do not fit together, a bias of another shape. Where the
    promised call is wrong, too, it says nothing: other laws do.
    """
    wrong, worst_z = [], dict(trial.meter.worst_z)
    for probe in probes(trial.impl, trial.case):
        trial.write_down(probe.what)
        if broken := wrong_outside(trial, probe):
            wrong.append((probe, broken))
            if not trial.caller.device_works():
                break
    promise_is_broken = bool(wrong) and trial.caller.device_works() and not _keeps_promise(trial)
    trial.meter.worst_z = worst_z  # what was tried under either alignment, and a broken promise, say nothing
    if not wrong:
        return
    if promise_is_broken:
        trial.meter.looks += 1
        if not trial.meter.cases and trial.meter.looks == MOST_LOOKS:
            raise Undecided("what is promised is wrong, too: other laws say how", Reason.CONTRACT)
        trial.needs(False)
    (probe, broken), *others = wrong
    raise LawBroken(
        f"called with {probe.what}, it raises no error, and {broken.headline}",
        *broken.observed,
        *(f"also with {other.what}: {found.headline}" for other, found in others),
        'raise an error for such a call, support it, or declare outside="undefined"',
    )


def _keeps_promise(trial: Trial) -> bool:
    """Whether the case itself, which is promised, is right."""
    try:
        check_budget(trial, trial.run(backward=trial.backward))
    except LawBroken:
        return False
    return True


def _timed(trial: Trial) -> tuple[Outputs, float]:
    """The outputs of a second call, as the first may compile, and by how many seconds the inputs are to be late."""
    for _ in range(2):
        started = time.perf_counter()
        outputs = trial.run(backward=trial.backward)
    least, most = DELAY
    return outputs, min(most, max(least, 3 * (time.perf_counter() - started)))
