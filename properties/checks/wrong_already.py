"""Tells whether two results differ less than each of them differs from the definition.

A law that compares two results of one implementation allows the rounding of the right function. A
kernel that computes another function has other intermediates, and may round more: the law would
blame its own subject (an order, an offset, a layout) for the rounding of a function that no budget
is derived for. So the law says nothing about results that are wrong alike. The laws about the
definition report them.
"""

from __future__ import annotations

import torch

from flash_attest import oracle
from flash_attest.oracle import Z_LIMIT
from flash_attest.properties.failures import WrongAlready

# Results are wrong alike if they differ by at most this fraction of their error: the element's, or
# the root mean square of all wrong elements, as the error of one element may be small by chance.
ALIKE = 1 / 2
# The fraction of the elements that must be wrong in both results: of those that differ, or of all.
# An element of a wrong result may be right by chance, and so may several of few that differ.
MOST = 3 / 4


def stop_if_wrong_alike(
    name: str,
    got: torch.Tensor,
    want: torch.Tensor,
    right: torch.Tensor,
    sigma: torch.Tensor,
    differ: torch.Tensor,
    dtype: torch.dtype,
    form: str,
) -> None:
    """Raise WrongAlready if both results are wrong, and differ by much less than that.

    got, want: two results that a law compares. right: the oracle's value for both. differ: the
    elements in which they differ by more than rounding explains.
    """
    got, want, right, sigma = (x.double().broadcast_to(differ.shape) for x in (got, want, right, sigma))
    wrong = torch.ones_like(differ)
    for result in (got, want):
        wrong &= oracle.score(result, right, sigma, dtype, form).z > Z_LIMIT
    if max(wrong[differ].double().mean(), wrong.double().mean()) < MOST:
        return
    error = torch.minimum((got - right).abs(), (want - right).abs())
    usual = error[wrong].square().mean().sqrt()
    apart = (got - want).abs()
    if bool((apart <= ALIKE * torch.maximum(error, usual))[differ].all()):
        raise WrongAlready(
            f"not judged: {name} is wrong already, by up to {error[wrong].max().item():.3g} "
            f"(two results, which the law compares, differ by {apart[differ].max().item():.3g})"
        )
