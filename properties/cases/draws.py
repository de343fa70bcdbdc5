"""The conditions of a law on its cases. strategies.py draws cases, fitting.py adapts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import BIAS_MASKS, Case
from flash_attest.properties.cases.feature import Feature
from flash_attest.properties.cases.features import FEATURES


@dataclass(frozen=True, eq=False)
class Draws:
    """The conditions of a law on its cases.

    features: the wanted values of each feature that the law names (features.py). Other features
    have any declared value.
    cross, gqa: True, False, or None for everything that is declared. With cross=True the two
    lengths are drawn independently, and may be equal.
    bias_mask: the masks that a bias may have.
    seqlen_q, seqlen_k: (least, most); most=None follows the device.
    stretch: how many times longer than usual the sequences may be.
    reach: a length that sequences can reach, if the limits of the device allow it.
    two_tiles: sequences can reach two tiles of keys and part of a third, so that a bias can hide a
        whole tile.
    limited: whether cases keep within the limits of the device. If not, `toward` and `where` alone
        bound their sizes.
    where: a condition that fields cannot express.
    toward: changes a drawn case so that `where` is likely to be true.
    """

    features: Mapping[str, tuple] = field(default_factory=dict)
    cross: bool | None = None
    gqa: bool | None = None
    bias_mask: tuple[str, ...] = BIAS_MASKS
    seqlen_q: tuple[int, int | None] = (1, None)
    seqlen_k: tuple[int, int | None] = (1, None)
    stretch: int = 1
    reach: int = 0
    two_tiles: bool = False
    limited: bool = True
    where: Callable[[Case], bool] | None = None
    toward: Callable[[Case], Case] = lambda case: case

    @classmethod
    def of(cls, **wants: Any) -> Draws:
        """Make Draws from keywords: the names of features, and fields of Draws.

        Example: Draws.of(causal=True, regime=("spread", "mean"), stretch=LONG). The value of a
        feature is a tuple of values, one value, True (every value but the neutral one), or False
        (the neutral one).
        """
        own = {name: wants.pop(name) for name in tuple(wants) if name in cls.__dataclass_fields__}
        if unknown := sorted(set(wants) - set(FEATURES)):
            known = ", ".join((*FEATURES, *cls.__dataclass_fields__))
            raise TypeError(f"{', '.join(unknown)}: a law cannot want that; it can want {known}")
        return cls({name: FEATURES[name].wanted(want) for name, want in wants.items()}, **own)

    def values(self, name: str, impl: Implementation) -> tuple:
        """Return the values of a feature to draw for an implementation, the simplest first."""
        return FEATURES[name].drawn(impl.supports, self.features.get(name))

    def wanted(self, feature: Feature) -> tuple | None:
        """Return the values of a feature that the law wants; None if it takes any."""
        return self.features.get(feature.name, feature.unnamed)

    def excludes(self, case: Case, features: Iterable[Feature] = tuple(FEATURES.values())) -> str | None:
        """Return why the law does not want a given case; None if it does.

        features: those whose value the law may not want.
        """
        for feature in features:
            wanted = self.wanted(feature)
            if wanted is not None and feature.value(case) not in wanted:
                return f"the law wants {' or '.join(map(feature.words, wanted))}"
        if self.cross is False and case.seqlen_q != case.seqlen_k:
            return "the law wants seqlen_q = seqlen_k"
        if self.gqa is not None and self.gqa != (case.nheads != case.nheads_k):
            return f"the law wants nheads_k {'<' if self.gqa else '='} nheads"
        if case.bias is not None and case.bias_mask not in self.bias_mask:
            return f"the law wants bias_mask in {', '.join(self.bias_mask)}"
        for name in ("seqlen_q", "seqlen_k"):
            if not _between(getattr(case, name), bounds := getattr(self, name)):
                return f"the law wants {name} from {bounds[0]} to {bounds[1]}"
        if self.where is not None and not self.where(case):
            return "the law wants another case (see the law's `where`)"
        return None


def _between(n: int, bounds: tuple[int, int | None]) -> bool:
    return bounds[0] <= n and (bounds[1] is None or n <= bounds[1])


ANYTHING = Draws()  # every case that an implementation supports
# Keywords of a law that wants none of the features which most cases lack: its cases are large, or
# the law makes inputs of its own.
PLAIN = {feature.name: False for feature in FEATURES.values() if feature.alone and feature.name != "shared_kv"}
