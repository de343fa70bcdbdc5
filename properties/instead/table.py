"""The table of mistakes, the plainest first: where several fit, the first ones are named."""

from __future__ import annotations

from collections.abc import Callable

from flash_attest.impls.contract.supports import Supports
from flash_attest.properties.cases.case import Case, text_of
from flash_attest.properties.cases.feature import Feature
from flash_attest.properties.cases.features import FEATURES, variant_of
from flash_attest.properties.instead import caps_and_sinks, forms, gradients, inputs, keys, narrow, results, splits
from flash_attest.properties.instead.answer import Answer, Changed
from flash_attest.properties.instead.mistake import Mistake, definition


def of_feature(feature: Feature) -> list[Mistake]:
    """Return the mistakes of computing another case (`Feature.mistaken`)."""

    def mistake(name: str, words: str, other: Callable[[Case], Case | None]) -> Mistake:
        def changed(answer: Answer) -> Changed | None:
            case = other(answer.case)
            if case is None or case == answer.case:
                return None
            lacking = {n: None for n in ("sinks", "dlse") if not getattr(case, n)}
            lacking |= {} if case.hidden else {"block_mask": None, "kv_indices": None}
            x = answer.x.with_(**lacking)
            return Changed(x, variant_of(case, answer.impl.causal_alignment, x))

        def said(answer: Answer) -> str:
            case = other(answer.case) or answer.case
            return words.format(**{name: text_of(value) for name, value in vars(case).items()})

        in_backward = "" if feature.name == "dlse" else ", in the backward alone"
        return definition(name, said, changed, in_backward=in_backward)

    return [mistake(*each) for each in feature.mistaken]


# Mistakes that are as good as a correct call with other arguments: cheap enough for large tensors.
ARGUMENTS = {
    "default scale",
    "no scale",
    "causal ignored",
    "causal",
    "other alignment",
    "window ignored",
    "softcap ignored",
    "sinks ignored",
    "hidden keys ignored",
    "bias ignored",
    "lse in base 2",
}
TABLE: tuple[Mistake, ...] = (
    *inputs.SCALES,
    *(mistake for feature in FEATURES.values() for mistake in of_feature(feature)),
    *keys.KEYS,
    *keys.BIASES,
    *caps_and_sinks.FORWARD,
    *inputs.HEADS,
    *inputs.VALUES,
    *results.RESULTS,
    *caps_and_sinks.BACKWARD,
    *gradients.ROWS,
    *gradients.FACTORS,
    *gradients.SUMS,
    *narrow.NARROW,
)
OF_FORMS = (*forms.RAGGED, *splits.SPLITS, *splits.PARTS)
CHEAP = tuple(mistake for mistake in TABLE if mistake.name in ARGUMENTS)


def table_of(supports: Supports) -> tuple[Mistake, ...]:
    """Return the mistakes that an implementation of this form can make."""
    return TABLE if supports.form == "dense" and not supports.takes_splits else (*OF_FORMS, *TABLE)
