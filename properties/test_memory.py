"""What lies around the inputs is neither read nor written, what lay in the outputs before does not matter."""

import torch

from impls.handover import Outputs, from_layout
from properties.broken import LawBroken, Raises
from properties.case import FAR, LAYOUTS
from properties.checks import check_agree, check_unchanged
from properties.law import law
from properties.pictures import element_at, number, plural, share, where
from properties.trial import Trial
from races.poison import PATTERNS, poisoned

AROUND = 7.0  # an innocent value to compare NaN with


@law(layouts=LAYOUTS, bug="memory")
def test_memory_around_inputs_is_not_read(trial):
    """NaN before, after and between the rows of every input changes nothing: each output equals the one with 7 there.

    0 * NaN is NaN, so it also shows padding that is read and then masked after the load.
    """
    _same_however(trial, lambda backward: [_run_amid(trial, fill, backward) for fill in (AROUND, torch.nan)],
                  "with NaN around the inputs; with 7 there it is")  # fmt: skip


@law(layouts=LAYOUTS, bug="memory")
def test_inputs_come_back_unchanged(trial):
    """Every input, and 256 elements before and after it, have the same bits after the call as before it."""
    handed, placed = trial.place(trial.x, torch.nan)
    trial.call(handed, backward=trial.backward)
    for name, there in placed.items():
        if written := there.written():
            public = there.tensor if name == "bias" else from_layout(trial.impl, there.tensor)
            before = getattr(trial.x, name)
            if bool((changed := public != before).any()):
                at = tuple(int(i) for i in changed.nonzero()[0])
                values = f"from {number(before[at].item())} to {number(public[at].item())}"
                raise LawBroken(f"{element_at(name, at)} changed {values} during the call ({share(changed)} changed)",
                                where(trial, name, changed))  # fmt: skip
            raise LawBroken(
                f"{plural(written, 'element')} around {name} (margins, gaps between rows) changed in the call"
            )


@law(layouts=LAYOUTS[1:], needs=("strides",), bug="calling")
def test_any_layout_equals_the_contiguous_one(trial):
    """How q, k, v and dout lie in memory (transposed, packed with others, with gaps, with strides) changes no value.

    Within the budget of both, as another layout may take another path.
    """
    _is_as_contiguous(trial, trial.run(backward=trial.backward))


@law(layouts=FAR, needs=("strides",), seqlen_q=(1, 70), seqlen_k=(1, 70), share=0.5, bug="boundaries")
def test_offsets_need_64_bits(trial):
    """Elements that lie 2^32 elements behind the first, as in a cache of keys for many sequences, are found there.

    layout=far_1: dimension 1 of every input is spread that far, in memory that takes space only where it is touched. Around
    it is 0, so an offset cut to 32 bits finds that, or another element. Within the budget of both, as for other layouts.
    An error is no wrong number: who says that a stride is too large has not promised to take it.
    """
    spread = FAR.index(trial.case.layout)
    trial.needs(any(trial.as_stored(name, tensor).shape[spread] > 1 for name, tensor in trial.x.items()))
    try:
        got = trial.run(backward=trial.backward)
    except Raises as error:
        trial.lets_pass(error)
    _is_as_contiguous(trial, got)


@law(bug="memory")
def test_what_memory_held_before_does_not_matter(trial):
    """Fresh memory may hold anything: with huge numbers, NaN, or 0 in it before the call, the outputs are the same.

    So no output element is left unwritten, and no scratch memory is relied on to be clean.
    """

    def results(backward: bool):
        got = []
        for pattern in PATTERNS:
            with poisoned(pattern, trial.device, trial.nbytes):
                got.append(trial.run(backward=backward))
        return got

    _same_however(trial, results, "where fresh memory held other bits; before that it was")


def _is_as_contiguous(trial: Trial, got: Outputs) -> None:
    backward = trial.backward
    plain = trial.run(backward=backward, layout="contiguous")
    budget = trial.budget(trial.want(backward=backward), backward=backward)
    for name, tensor in got.items():
        check_agree(trial, name, tensor, getattr(plain, name), getattr(budget, name), "with contiguous inputs it is")


def _run_amid(trial: Trial, fill: float, backward: bool):
    handed, _ = trial.place(trial.x, fill)
    return trial.call(handed, backward=backward)


def _same_however(trial: Trial, results, should: str) -> None:
    backward = trial.backward
    first, *others = results(backward)
    for other in others:
        check_unchanged(trial, first, other, should)
