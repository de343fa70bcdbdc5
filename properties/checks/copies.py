"""Inputs whose heads are all equal, and comparisons of the heads within each launch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.checks.comparisons import check_agree
from flash_attest.properties.checks.pictures import AXES, plural, share, where
from flash_attest.properties.checks.repeated import under
from flash_attest.properties.checks.wrong import wrong_in
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial
from flash_attest.races.copies import Copies, compare_copies
from flash_attest.races.repeat import Repeats

VARIES = "a race, or memory that was never written"
CONSTANT = "sums or splits of keys that depend on the position of a block, or memory that blocks share"
INTENDED = "\n(if this is intended, as with stream-K or unequal splits, leave the output out of `equal_heads`)"
HEADS = 256  # heads of a launch on a GPU, which then makes hundreds of comparisons
MOST_ELEMENTS = 2**25  # the largest size of an input


def of_several(case: Case) -> Case:
    """Return the case, with a second batch if it has only one batch and head."""
    return case.but(batch=2) if case.batch * case.nheads == 1 else case


def exact_outputs(trial: Trial) -> tuple[set[str], set[str]]:
    """Return the outputs whose copies are equal, and those that differ alike in each launch.

    The first are declared in `equal_heads`. If that is not declared, the second are the
    `repeatable` outputs: a kernel that reads aligned rows in wider loads, like PyTorch's
    reductions, sums them in an order that depends on the address of a head. On a CPU both are empty
    unless the kernels are traced, as a library's matrix product may depend on the address of a
    matrix.
    """
    impl = trial.impl
    if trial.device != "cuda" and not impl.traced:
        return set(), set()
    return (set(), set(impl.repeatable)) if impl.equal_heads is None else (set(impl.equal_heads), set())


def inputs_of(trial: Trial, many: bool) -> Inputs:
    """Return the case's inputs with every head equal to the first.

    many: add batches until there are as many heads as a GPU runs at once. None are added if all
    batches share a bias or sinks, as the oracle would sum their gradients over them.
    """
    case, times = trial.case, 1
    if many and not _sums_over_batches(trial):
        of_a_batch = case.nheads * max(case.headdim, case.headdim_v) * max(case.seqlen_q, case.seqlen_k)
        if case.bias:
            of_a_batch = max(of_a_batch, math.prod(case.bias_shape[1:]))
        fits = MOST_ELEMENTS // of_a_batch
        batch = max(case.batch, min(-(-HEADS // case.nheads), fits))
        bias_batch = batch if case.bias else 1
        if unsupported(trial.impl, case.but(batch=batch, bias_batch=bias_batch)) is None:
            times = batch
    return Inputs(**{name: _equal(name, tensor, times) for name, tensor in trial.x.items()})


def _sums_over_batches(trial: Trial) -> bool:
    """Return whether a gradient is a sum over batches: of a bias that they share, or of sinks."""
    case = trial.case
    shares_bias = case.bias is not None and (case.bias_batch == 1 or case.batch == 1)
    return shares_bias or (case.sinks is not None and trial.impl.gives_dsink)


def _equal(name: str, tensor: torch.Tensor, batch: int) -> torch.Tensor:
    """Return a tensor with all heads equal to the first, and at least this many batches.

    A bias may keep a single batch.
    """
    axes, shape = axes_of(name, tensor, least=1), list(tensor.shape)
    if name != "sinks" and not (name == "bias" and shape[0] == 1):
        shape[0] = max(shape[0], batch)
    first = tensor[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(tensor.dim()))]
    return first.expand(shape).contiguous()


def axes_of(name: str, tensor: torch.Tensor, least: int = 2) -> tuple[int, ...]:
    """Return the axes of batches and heads that have at least `least` entries."""
    return tuple(n for n, axis in enumerate(AXES[name]) if axis in "bh" and tensor.shape[n] >= least)


@dataclass
class Seen:
    """The comparisons of all launches, by output. Only `differing` waits for the device."""

    launches: int = 0
    comparisons: int = 0
    marked: dict[str, torch.Tensor] = field(default_factory=dict)  # the elements that differed in any launch
    slices: dict[str, list[torch.Tensor]] = field(default_factory=dict)  # for each launch, which slices differed
    largest: dict[str, torch.Tensor] = field(default_factory=dict)

    def add(self, results: dict[str, torch.Tensor]) -> None:
        """Compare the heads of one launch."""
        self.launches += 1
        most = 0
        for name, tensor in results.items():
            if axes := axes_of(name, tensor):
                copies = compare_copies(tensor, axes)
                most = max(most, copies.n)
                self._add_output(name, copies)
        self.comparisons += most

    def _add_output(self, name: str, copies: Copies) -> None:
        before = self.marked.get(name)
        self.marked[name] = copies.marked if before is None else before | copies.marked
        self.slices.setdefault(name, []).append(copies.by_slice)
        largest = self.largest.get(name)
        self.largest[name] = copies.largest if largest is None else torch.maximum(largest, copies.largest)

    def varies(self, name: str) -> bool:
        """Return whether different heads differed in different launches."""
        slices = self.slices[name]
        return any(bool((each != slices[0]).any()) for each in slices)

    def differing(self) -> dict[str, list[int]]:
        """Return, for each output, the launches in which some head differed from the first one."""
        by_launch = {name: torch.stack([s.any() for s in slices]).tolist() for name, slices in self.slices.items()}
        return {name: [n for n, it in enumerate(differs) if it] for name, differs in by_launch.items() if any(differs)}


def broken(trial: Trial, seen: Seen, results: Repeats, name: str) -> LawBroken:
    """Return the failure for an output whose heads differ in some launches."""
    launches = seen.differing()
    slices = torch.stack(seen.slices[name])
    differ, others = slices.any(0), slices[0].numel() - 1
    number, marked = int(differ.sum()), seen.marked[name]
    repeats = Repeats(seen.launches, {}, [(), *results.under], {name: launches[name]})
    each = ", ".join(f"{other} in {plural(len(n), 'call')}" for other, n in launches.items())
    return LawBroken(
        f"{name}: {number} of {plural(others, 'equal head')} differ{'s' * (number == 1)} from the first one, in "
        f"{len(launches[name])} of {plural(seen.launches, 'call')}, in {share(marked)}, by up to "
        f"{float(seen.largest[name]):.3g}",
        where(trial, name, marked, "differs"),
        f"outputs that differ: {each}" if len(launches) > 1 else "",
        "all others differ from the first one: it is probably the wrong one" if number == others > 1 else "",
        ""
        if seen.varies(name)
        else "the same heads differ in each call: the result depends on where a head is computed",
        under(repeats, name),
        suggests=(VARIES if seen.varies(name) else CONSTANT)
        + (INTENDED if name in (trial.impl.equal_heads or ()) else ""),
        wrong=wrong_in(trial, name, marked),
    )


def check_spread(trial: Trial, results: Repeats, x: Inputs) -> None:
    """Check that the heads agree within the budget in all outputs whose copies may differ.

    This covers all launches and heads.
    """
    several = {name: pair for name, pair in results.between.items() if axes_of(name, pair[0])}
    if not several:
        return
    if not _sums_over_batches(trial):  # all batches are equal, so the oracle needs only the first
        x = x.with_(**{name: tensor[:1] for name, tensor in x.items() if name != "sinks"})
    expected = trial.expected(x, backward=trial.backward)
    for name, (least, most) in several.items():
        axes, bound = axes_of(name, least), getattr(expected.sigma, name)
        shape, right = bound.shape, getattr(expected.want, name)
        least, most = least.amin(axes, keepdim=True).expand(shape), most.amax(axes, keepdim=True).expand(shape)
        check_agree(trial, name, most, least, bound, "another call or head with equal inputs gives", right=right)
