"""Forms of a call: pages, new keys, splits, and rows that belong to no sequence."""

from flash_attest.impls.contract.heads import ordered
from flash_attest.impls.contract.tensors import Inputs, public_input
from flash_attest.properties.cases.far_pages import far_apart
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.limits import short
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.checks.buffers import check_appended, check_zero
from flash_attest.properties.checks.comparisons import check_all_agree, check_budget, check_unchanged
from flash_attest.properties.checks.pictures import plural
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.forms.refitted import nobodys, refitted, shorter, turned
from flash_attest.properties.law import law
from flash_attest.properties.trial import Trial
from flash_attest.races.poison import PATTERNS, poisoned


@law(needs=("pages",), page_order=("shuffled",), share=0.3, bug="forms")
def test_order_of_pages_does_not_matter(trial):
    """Keys in other pages give the same results, if the block table names these pages.

    A page may lie anywhere in the pool, and its neighbours there belong to other sequences. Results
    of shuffled pages have the bits of those in order, as the keys are read in the same order.
    """
    in_order = trial.of(trial.case.but(page_order="in_order"))
    check_unchanged(trial, in_order.run(trial.x), trial.run(), "with shuffled pages; with pages in order it is")


@law(needs=("append", "shared memory"), append=(1, 5), share=0.3, bug="forms")
def test_append_then_attend_is_concatenate(trial):
    """New keys give the results that they give if they are in the cache already.

    The call writes them behind the keys of their sequence, and attends to all. It changes nothing
    else in the cache. Results agree within the budget, as new keys may have a tile of their own.
    """
    case, caller = trial.case, trial.caller
    handed = caller.laid_out(trial.x)
    before = {name: public_input(trial.impl, name, getattr(handed, name)).clone() for name in ("k", "v")}
    got = caller.call(handed).copy()
    for name, buffer in before.items():
        new = public_input(trial.impl, f"{name}_new", getattr(handed, f"{name}_new"))
        now = public_input(trial.impl, name, getattr(handed, name))
        check_appended(name, now, buffer, new, handed.plan)
    in_cache = trial.of(case.but(append=0)).run(trial.x)
    keys = plural(min(case.append, case.seqlen_k), "key")
    check_all_agree(
        trial, got, in_cache, trial.expected(), f"where the call appends the last {keys}; in the cache it is"
    )


@law(needs=("splits",), num_splits=(2, 3, 8, 64), share=0.3, bug="forms")
def test_number_of_splits_does_not_matter(trial):
    """Any number of splits gives the same results, within the budget.

    The numbers are drawn, 1, and one more than there are keys, if they are declared. A split
    without keys has no weight: its maximum and its lse are -inf. A sink belongs to one split.
    """
    case, backward = trial.case, trial.backward
    got, expected, answered = trial.run(backward=backward), None, 0
    for number in dict.fromkeys((1, case.seqlen_k + 1)):
        other = case.but(num_splits=number)
        if number == case.num_splits or unsupported(trial.impl, other) is not None:
            continue
        expected, answered = expected or trial.expected(backward=backward), answered + 1
        plain = trial.of(other).run(trial.x, backward=backward)
        check_all_agree(trial, got, plain, expected, f"in {case.num_splits} splits; in {plural(number, 'split')} it is")
    trial.needs(answered > 0)


@law(needs=("rows of nobody",), slack=True, share=0.2, bug="forms")
def test_rows_of_nobody_are_zero(trial):
    """Rows of out and of gradients that belong to no sequence hold 0, with slack_rows="zero".

    These are the rows behind the last sequence, and in a padded call those behind each sequence.
    Fresh memory holds NaN, so each of these rows has to be written. lse may hold anything there.
    """
    handed = trial.caller.laid_out(trial.x)
    rows = nobodys(handed.plan)
    trial.needs(rows.q_rows.numel() > 0)
    with poisoned(PATTERNS[1], trial.device, handed.nbytes):
        got = trial.caller.call(handed.with_(plan=rows), backward=trial.backward)
    check_zero(got, handed.plan.words)


@law(needs=("lengths",), append=False, share=0.2, softmax_scale=False, toward=short, bug="forms")
def test_answers_follow_lengths_and_tables(trial):
    """Results depend on the values of lengths and tables, not on their addresses.

    Before a call, the same tensors hold the lengths and tables of its sequences in another order;
    after it, shorter sequences are written into them. So a plan of a call, such as the number of
    splits or the order of blocks, is not kept by address, shape or identity; a CUDA graph is
    replayed on the same tensors, too.
    """
    caller, backward = trial.caller, trial.backward
    handed = caller.stored(trial.x)
    case, right = shorter(trial, handed), turned(handed)
    caller.call(handed, backward=backward)
    for name, table in right.items():
        getattr(handed, name).copy_(table)
    _check_lengths(trial, handed, trial.x)
    new = build(case, trial.device)
    plan = refitted(trial.impl, case, new, handed.plan)
    packed = plan.pack(ordered(trial.impl, new), 0.0)
    for name, tensor in handed.items():
        tensor.copy_(caller.as_stored(name, getattr(packed, name)))
    _check_lengths(trial.of(case), handed.with_(plan=plan), new)


def _check_lengths(trial: Trial, handed: Inputs, x: Inputs) -> None:
    """Raise LawBroken if results on x are wrong, and are right in copies of the same tensors."""
    caller, backward = trial.caller, trial.backward
    got = caller.call(handed, backward=backward)
    try:
        check_budget(trial, got, x)
    except LawBroken as broken:
        again = caller.call(_copied(handed), backward=backward)
        check_budget(trial, again, x)  # else the answer is wrong at any address, and other laws say more
        headline = (
            f"{broken.headline}; lengths and tables were written into the same tensors, and copies of these are right"
        )
        suggests = "something that was made from lengths or tables is kept by the address, the shape or the identity"
        raise LawBroken(headline, *broken.observed, handed.plan.words, suggests=suggests) from None


def _copied(handed: Inputs) -> Inputs:
    return handed.with_(**{name: tensor.clone() for name, tensor in handed.items()})


@law(needs=("cache", "same process"), seqlen_q=(1, 70), seqlen_k=(1, 70), share=0.3, bug="forms")
def test_pages_may_lie_far_apart(trial):
    """Pages, or slots of a cache, are found in a pool of 2^32 elements, with numbers near 2^20.

    The pool is sparse memory, which holds 0 elsewhere. So an offset that is cut to 32 bits, or a
    page number to 16, reads 0 or another page. An error is accepted: an implementation may refuse a
    pool that is too large.
    """
    plain = trial.run()
    far = trial.caller.answer(far_apart(trial.impl, trial.caller.stored(trial.x)))
    trial.needs(far is not None)
    check_unchanged(trial, plain, far, "with pages far apart; in a small pool it is")
