"""Calls outside of the contract, one step away from a case that the contract covers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.bias_masks import may_have_empty_rows
from flash_attest.properties.cases.case import BOOLEAN, Case, text_of
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.layouts import UNALIGNED
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.cases.telling import telling

# Features without a keyword. An undeclared feature with a keyword cannot be passed at all.
ASKED = ("dtype", "headdim", "headdim_v", "gqa", "layout")


@dataclass(frozen=True)
class Probe:
    """One call outside of the contract.

    what: its difference from a supported case, in the words of a message.
    case: the case whose inputs are built and then changed by `change`.
    answered: whether there is a right answer.
    coarse: whether the answer may be as inexact as in bfloat16, because no precision is declared.
    of_kind: what differs, without sizes; "" if `what` names none.
    """

    what: str
    case: Case
    change: Callable[[Inputs], Inputs] = lambda x: x
    answered: bool = True
    coarse: bool = False
    of_kind: str = ""

    @property
    def kind(self) -> str:
        """The words that say what differs, by which the same call of another case is found."""
        return self.of_kind or self.what


def probes(impl: Implementation, case: Case) -> Iterator[Probe]:
    """Yield the calls outside of the contract to try for a supported case.

    No call has a row without keys, as the result of such a row may be undefined.
    """
    for probe in (*_undeclared(impl, case), *_other_dtypes(case), *_misfits(case), *_other_biases(case)):
        if probe.answered and may_have_empty_rows(probe.case, impl.causal_alignment):
            continue
        yield probe


def _undeclared(impl: Implementation, case: Case) -> Iterator[Probe]:
    """Yield calls with undeclared values of features, or lengths that `accepts` refuses.

    No address is less aligned than declared, as a wide load there ends a process on a GPU.
    """
    kinds = ("bias",) if impl.supports.bias_kinds else ()
    for name in (*ASKED, *kinds):
        feature = FEATURES[name]
        for value in _headdims(impl, case) if name == "headdim" else feature.values:
            if not feature.takes(impl.supports, value) and value not in UNALIGNED:
                other = feature.changed(case, value)
                if name == "layout" and telling(other).headdim in impl.supports.headdims:
                    other = telling(other)
                probe = Probe(feature.words(value), other, coarse=name == "dtype")
                yield replace(probe, of_kind=name) if name == "headdim" else probe
    if not impl.supports.cross:
        for q, k in ((1, 2), (2, 1)):
            other = case.but(seqlen_q=q * case.seqlen_q, seqlen_k=k * case.seqlen_k)
            yield Probe(f"seqlen_q={other.seqlen_q} and seqlen_k={other.seqlen_k}", other, of_kind=f"cross {q} {k}")
    longer = case.but(seqlen_q=case.seqlen_q + 1, seqlen_k=case.seqlen_k + 1)
    if impl.supports.accepts is not None and (reason := unsupported(impl, longer)):
        yield Probe(f"seqlen_q={longer.seqlen_q} and seqlen_k={longer.seqlen_k} ({reason})", longer, of_kind="longer")


def _headdims(impl: Implementation, case: Case) -> list[int]:
    """Return the next undeclared head dim, and the one after the largest declared head dim."""
    declared = impl.supports.headdim_list
    above = next(d for d in range(case.headdim + 1, declared[-1] + 2) if d not in declared)
    return sorted({above, declared[-1] + 1})


def _other_dtypes(case: Case) -> Iterator[Probe]:
    """Yield calls in float64, and calls with k and v, only v, or dout in another dtype than q.

    No implementation can declare float64.
    """
    yield Probe(
        "dtype float64", case.but(dtype=torch.float32), _converted(torch.float64, "q", "k", "v", "dout"), coarse=True
    )
    other = torch.float16 if case.dtype == torch.float32 else torch.float32
    for rest, names in (("q", ("k", "v")), ("q, k", ("v",)), ("q, k, v", ("dout",))):
        what = f"{rest} in {text_of(case.dtype)} and {', '.join(names)} in {text_of(other)}"
        yield Probe(what, case, _converted(other, *names), coarse=True)


def _misfits(case: Case) -> Iterator[Probe]:
    """Yield calls with k and v that do not fit q, so there is no right answer.

    No size is 1, as it could be broadcast. A v of another length than k is left out:
    scaled_dot_product_attention takes it without an error on a CPU, so every implementation that
    wraps it would, too (docs/why/bugs.md#found-by-this-suite).
    """
    other_heads = f"nheads={case.nheads} and nheads_k={case.nheads + 1}"
    misfits = [
        (case.batch > 1, "one batch more in k and v than in q", "batch", 0),
        (case.nheads > 1 and case.nheads == case.nheads_k, other_heads, "nheads_k", 2),
        (case.headdim > 1, "one column more in k and v than in q", "column", 3),
    ]
    for applies, what, kind, dim in misfits:
        if applies:
            grown = partial(_more_in_k_and_v, dim=dim)
            yield Probe(what, case, grown, answered=False, of_kind=kind)


def _other_biases(case: Case) -> Iterator[Probe]:
    """Yield calls with a bias of another shape or dtype."""
    if case.bias is None:
        return
    names = ("batch", "nheads", "seqlen_q", "seqlen_k")
    full = (case.batch, case.nheads, case.seqlen_q, case.seqlen_k)
    for dim, name in enumerate(names):
        if case.bias_shape[dim] == full[dim] > 1:
            what = f"a bias of {full[dim] + 1} where {name} is {full[dim]}"
            grown = partial(_more_in_bias, dim=dim)
            yield Probe(what, case, grown, answered=False, of_kind=f"bias of more {name}")
    if case.seqlen_k > 2:
        what = f"a bias of {case.seqlen_k - 1} where seqlen_k is {case.seqlen_k}"
        yield Probe(what, case, _one_key_less_in_bias, answered=False, of_kind="bias of fewer keys")
    if case.bias_batch == 1:
        yield Probe("a bias of three dimensions", case, lambda x: x.with_(bias=x.bias[0]))
    if case.bias in BOOLEAN:  # with numbers it would be another feature, which is asked for above
        return
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        if dtype != case.dtype:
            yield Probe(f"a bias in {text_of(dtype)}", case, _converted(dtype, "bias"), coarse=True)


def _more_in_k_and_v(x: Inputs, dim: int) -> Inputs:
    return x.with_(k=_grown(x.k, dim), v=_grown(x.v, dim))


def _more_in_bias(x: Inputs, dim: int) -> Inputs:
    return x.with_(bias=_grown(x.bias, dim))


def _one_key_less_in_bias(x: Inputs) -> Inputs:
    return x.with_(bias=x.bias[..., 1:].contiguous())


def _grown(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the tensor with one more slice in a dimension."""
    return torch.cat((tensor, tensor.narrow(dim, 0, 1)), dim)


def _converted(dtype: torch.dtype, *names: str) -> Callable[[Inputs], Inputs]:
    return lambda x: x.with_(**{name: getattr(x, name).to(dtype) for name in names})


def other_alignment(impl: Implementation, case: Case) -> Implementation | None:
    """Return the implementation with the other alignment, if this case is not supported."""
    if impl.supports.cross or not case.causal or case.seqlen_q == case.seqlen_k:
        return None
    other = {"bottom_right": "top_left", "top_left": "bottom_right"}[impl.causal_alignment]
    return replace(impl, causal_alignment=other)
