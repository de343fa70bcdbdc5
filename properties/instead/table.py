"""The table of mistakes, the plainest first: where several fit, the first ones are named."""

from __future__ import annotations

from collections.abc import Callable

from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.feature import Feature
from flash_attest.properties.cases.features import FEATURES, variant_of
from flash_attest.properties.instead import gradients, inputs, keys, narrow, results
from flash_attest.properties.instead.answer import Answer, Changed
from flash_attest.properties.instead.mistake import Mistake, definition


def of_feature(feature: Feature) -> list[Mistake]:
    """Return the mistakes of computing another case (`Feature.mistaken`)."""

    def changed_by(other: Callable[[Case], Case | None]) -> Callable[[Answer], Changed | None]:
        def changed(answer: Answer) -> Changed | None:
            case = other(answer.case)
            if case is None or case == answer.case:
                return None
            return Changed(answer.x, variant_of(case, answer.impl.causal_alignment, answer.x))

        return changed

    return [definition(name, words, changed_by(other)) for name, words, other in feature.mistaken]


# Mistakes that are as good as a correct call with other arguments: cheap enough for large tensors.
ARGUMENTS = {
    "default scale",
    "no scale",
    "causal ignored",
    "causal",
    "other alignment",
    "bias ignored",
    "lse in base 2",
}
TABLE: tuple[Mistake, ...] = (
    *inputs.SCALES,
    *(mistake for feature in FEATURES.values() for mistake in of_feature(feature)),
    *keys.KEYS,
    *keys.BIASES,
    *inputs.HEADS,
    *inputs.VALUES,
    *results.RESULTS,
    *gradients.ROWS,
    *gradients.FACTORS,
    *gradients.SUMS,
    *narrow.NARROW,
)
CHEAP = tuple(mistake for mistake in TABLE if mistake.name in ARGUMENTS)
