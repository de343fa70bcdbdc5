"""A failing comparison keeps wrong values, or counts of keys, from which causes are guessed.

A guess is made from one failing case, and printed only if no other case at hand contradicts it
(properties/judging/at_hand.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flash_attest.properties.cases.case import Case

if TYPE_CHECKING:
    from flash_attest.properties.trial import Trial

MOST_VALUES = 1024  # wrong elements that are kept of a failing case
MOST_PAIRS = 2**17  # pairs of queries and keys of one head; longer cases keep no mask


@dataclass(frozen=True)
class Guess:
    """A guess at the cause of a failure.

    words: the guess. detail: a name for what it says; guesses with equal words share a line, which
    lists their details. holds(reading of another failing case): whether the guess is true there,
    None if the case cannot tell. is_right(trial of a case that holds): whether the case may hold if
    the guess is true. least: how many failing cases must confirm it.
    """

    words: str
    detail: str = ""
    holds: Callable[[Reading], bool | None] = lambda reading: None
    is_right: Callable[[Trial], bool] = lambda trial: True
    least: int = 0


@dataclass(frozen=True)
class Values:
    """Wrong elements of a tensor, at most MOST_VALUES of them.

    got, want, sigma: (n,) float64; sigma is the error that rounding explains. rows: (n,) numbers
    that differ for elements of different rows. defined: whether `want` is the definition's value,
    and not another result of the implementation.
    """

    name: str
    case: Case
    got: torch.Tensor
    want: torch.Tensor
    sigma: torch.Tensor
    rows: torch.Tensor
    defined: bool

    @classmethod
    def of(
        cls,
        name: str,
        case: Case,
        got: torch.Tensor,
        want: torch.Tensor,
        bad: torch.Tensor,
        sigma: torch.Tensor | None = None,
        *,
        defined: bool = True,
    ) -> Values:
        """Keep some of the elements that `bad` marks. All tensors broadcast to its shape."""
        at = bad.flatten().nonzero().flatten()
        at = at[:: -(-len(at) // MOST_VALUES)] if len(at) > MOST_VALUES else at
        sigma = want.double().abs() * 1e-4 if sigma is None else sigma

        def kept(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.broadcast_to(bad.shape).reshape(-1)[at].double().cpu()

        width = bad.shape[-1] if bad.dim() > 3 else 1
        return cls(name, case, kept(got), kept(want), kept(sigma), (at // width).cpu(), defined)


@dataclass
class Counts:
    """The numbers of keys that the queries of one head see, for inputs that make every score 0.

    seen: bool (sq, sk), the keys that should count; None if there are too many. counted: (sq,), the
    counts in exp(lse); None if out was compared. attended: bool (sq, sk), the keys that have
    weight, if they were measured. padding: whether keys that do not exist have weight.
    """

    case: Case
    alignment: str
    tile: tuple[int, int] | None
    seen: torch.Tensor | None
    counted: torch.Tensor | None = None
    attended: torch.Tensor | None = None
    padding: bool = False

    @classmethod
    def of(cls, trial: Trial, seen: torch.Tensor, counted: torch.Tensor | None = None) -> Counts:
        """Keep the mask of one head, and what was counted in it."""
        few = seen.numel() <= MOST_PAIRS
        counted = None if counted is None else counted.cpu()
        return cls(
            trial.case, trial.impl.causal_alignment, trial.impl.tile, seen.cpu().clone() if few else None, counted
        )


Reading = Values | Counts
