"""The features: neutral values, declarations, keywords, the oracle's variant, the table in the
docs.
"""

import re
from dataclasses import fields, replace
from itertools import product

import pytest
import torch

from flash_attest.impls import Supports, torch_math
from flash_attest.impls.contract.supports import DTYPES, KEYWORDS
from flash_attest.oracle import Mask, Variant
from flash_attest.properties.cases.case import BLOCKED, LAYOUTS, LISTED, Case, text_of
from flash_attest.properties.cases.feature import Feature, Part
from flash_attest.properties.cases.features import FEATURES, OF_KEYWORD, documentation, keywords_of, mask_of, variant_of
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.layouts import lay_out, layout_of
from flash_attest.properties.cases.support import unsupported
from tests.places import ROOT

DOCS = ROOT / "docs" / "use" / "implementation-reference.md"
PLAIN = Case(batch=2, seqlen_q=8, seqlen_k=8, nheads=2, nheads_k=2, headdim=64, dtype=torch.float32)
PLAIN_ONLY = Supports(dtypes={torch.float32}, headdims={64})
HEADDIMS = (1, 96)  # the table lists no head dims, because each implementation declares its own
# feature -> (value -> the fields of Supports that declare it, and the fields that declare
# everything except it)
DECLARATIONS = {
    "dtype": lambda dtype: (dict(dtypes={dtype}), dict(dtypes=set(DTYPES) - {dtype})),
    "causal": lambda _: (dict(causal="optional"), dict(causal="never")),
    "bias": lambda kind: (dict(bias={kind}), dict(bias={"vector", "matrix"} - {kind})),
    "cross": lambda _: (dict(cross=True), dict(cross=False)),
    "gqa": lambda _: (dict(gqa=True), dict(gqa=False)),
    "softmax_scale": lambda _: (dict(softmax_scale=True), dict(softmax_scale=False)),
    "window": lambda kind: (dict(window={kind}), dict(window={"left", "right", "both"} - {kind})),
    "softcap": lambda _: (dict(softcap=True), dict(softcap=False)),
    "sinks": lambda _: (dict(sinks=True), dict(sinks=False)),
    "headdim_v": lambda _: (dict(headdims_v={(64, 128)}), dict(headdims_v={(128, 64)})),
    "dlse": lambda _: (dict(lse_grad=True), dict(lse_grad=False)),
    "hidden": lambda kind: (
        dict(hidden={"blocks" if kind in BLOCKED else "indices"}, hidden_block=(64, 64)),
        dict(hidden="none" if kind in LISTED else {"indices"}),
    ),
    "shared_kv": lambda _: (dict(shared_kv="optional"), dict(shared_kv="never")),
    "layout": lambda _: (dict(strides=True), dict(strides=False)),
    "num_splits": lambda n: (dict(splits=(1, n)), dict(splits=(1, n + 1))),
    "neighbours": lambda _: (dict(form="varlen"), dict(form="dense")),
    "slack": lambda _: (dict(form="varlen"), dict(form="dense")),
    "page_order": lambda _: (dict(form="paged", page_sizes={16}), dict(form="cache")),
    "append": lambda _: (dict(form="cache", append=True), dict(form="cache", append=False)),
}


def id_of(part) -> str:
    return part.name if isinstance(part, Feature) else text_of(part)


def each(values_of):
    """Parametrize over features and the values that values_of(feature) gives."""
    pairs = [(feature, value) for feature in FEATURES.values() for value in values_of(feature)]
    return pytest.mark.parametrize(("feature", "value"), pairs, ids=id_of)


with_values = pytest.mark.parametrize("feature", [f for f in FEATURES.values() if f.values], ids=id_of)


# --- cases ----------------------------------------------------------------------------------------


@with_values
def test_the_simplest_value_is_neutral_if_the_feature_has_a_neutral_value(feature):
    assert feature.neutral in (None, feature.values[0])


@with_values
def test_the_simplest_value_leaves_a_plain_case_unchanged(feature):
    assert feature.changed(PLAIN, feature.values[0]) == PLAIN


@each(lambda feature: feature.values or HEADDIMS)
def test_a_changed_case_has_the_value(feature, value):
    assert feature.value(feature.changed(PLAIN, value)) == value


@each(lambda feature: feature.values)
def test_the_simplest_value_undoes_a_change(feature, value):
    assert feature.changed(feature.changed(PLAIN, value), feature.values[0]) == PLAIN


def test_a_case_without_bias_has_no_choices_for_a_bias():
    biased = PLAIN.but(bias="matrix", bias_mask="left", bias_batch=2, bias_nheads=2, bias_dtype=torch.float16)
    assert FEATURES["bias"].changed(biased, None) == PLAIN


# --- declarations ---------------------------------------------------------------------------------


def refusal(case: Case, declared: dict) -> str | None:
    supports = replace(PLAIN_ONLY, **declared)
    backward = None if supports.form in ("cache", "paged") else torch_math.IMPL.backward
    return unsupported(replace(torch_math.IMPL, name="tested", backward=backward, supports=supports), case)


@each(lambda feature: feature.tried)
def test_a_tried_value_is_supported_exactly_where_it_is_declared(feature, value):
    declared, all_but_this = DECLARATIONS[feature.name](value)
    case = feature.changed(PLAIN, value)
    words = "headdim 64 and headdim_v 128" if feature.name == "headdim_v" else feature.words(value)
    assert refusal(case, declared) is None
    assert refusal(case, all_but_this) == f"{words} is not supported by tested"


@pytest.mark.parametrize(
    ("causal", "taken"), [("never", [False]), ("optional", [False, True]), ("always", [True])]
)  # fmt: skip
def test_causal_has_three_declarations(causal, taken):
    feature = FEATURES["causal"]
    assert [value for value in feature.values if feature.takes(Supports(causal=causal), value)] == taken


@pytest.mark.parametrize(("strides", "refused"), [
    (False, set(LAYOUTS) - {"contiguous"}),
    ("aligned", {"last_strided", "offset", "odd_rows"}),
    ("last_contiguous", {"last_strided"}),
    (True, set()),
])  # fmt: skip
def test_strides_have_four_declarations(strides, refused):
    feature = FEATURES["layout"]
    assert {value for value in feature.values if not feature.takes(Supports(strides=strides), value)} == refused


def test_all_other_layouts_have_a_contiguous_last_dimension():
    """An implementation that declares strides="last_contiguous" may be called with any of these
    layouts.
    """
    for name, layout in product(("q", "k", "v", "dout", "bias"), set(LAYOUTS) - {"last_strided"}):
        assert lay_out(torch.zeros(2, 3, 4, 5), layout_of(name, layout)).stride(3) == 1, (name, layout)


@pytest.mark.parametrize("name", ["q", "k", "v", "dout", "bias"])
def test_rows_begin_at_multiples_of_16_bytes_where_that_is_declared(name):
    refused = {layout for layout in LAYOUTS if not FEATURES["layout"].takes(Supports(strides="aligned"), layout)}
    for layout in set(LAYOUTS) - refused:
        tensor = lay_out(torch.zeros(2, 3, 4, 8, dtype=torch.float16), layout_of(name, layout))
        assert all(n % 16 == 0 for n in (tensor.data_ptr(), *(2 * stride for stride in tensor.stride()[:3]))), layout


def test_the_docs_name_all_fields_of_a_case():
    """`accepts` gets all of these fields."""
    table = re.search(r"<!-- case -->\n(.*)\n<!-- /case -->", DOCS.read_text(), re.S)[1]
    cells = "".join(line.split("|")[1] for line in table.splitlines())
    assert set(re.findall(r"`(\w+)`", cells)) == {f.name for f in fields(Case)}


def test_headdims_are_supported_exactly_where_they_are_declared():
    case = PLAIN.but(headdim=96)
    assert refusal(case, dict(headdims={96})) is None
    assert refusal(case, dict(headdims={64, 128})) == "headdim 96 is not supported by tested"


def test_every_field_of_supports_declares_a_feature():
    declared = {name for feature in FEATURES.values() for name in re.findall(r"`(\w+)=", feature.declare)}
    assert declared == {f.name for f in fields(Supports)} - {"bias_grad", "sink_grad", "accepts"}


# --- keywords -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_is_a_feature_whose_default_is_neutral(name):
    feature = FEATURES[OF_KEYWORD.get(name, name)]
    assert KEYWORDS[name].default == feature.neutral
    assert feature.advice.startswith("supports.")


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_is_passed_only_where_it_is_declared(name):
    tried = {"block_mask": "blocks", "kv_indices": "topk"}.get(name) or FEATURES[name].tried[0]
    declared, _ = DECLARATIONS[OF_KEYWORD.get(name, name)](tried)
    assert KEYWORDS[name].declared(Supports(**declared)) and not KEYWORDS[name].declared(Supports())


def test_keywords_have_the_values_of_the_case():
    given = dict(causal=True, window=(3, None), softmax_scale=0.5, softcap=5.0, num_splits=3)
    assert keywords_of(PLAIN.but(**given, bias="vector", sinks="count")) == given
    assert (
        given.keys() | {"bias", "sinks", "block_mask", "kv_indices"} == KEYWORDS.keys()
    )  # tensors are passed separately


# --- the oracle's variant -------------------------------------------------------------------------


@each(lambda feature: feature.values if feature.part is Part.MASK else ())
def test_the_mask_has_the_value(feature, value):
    case = feature.changed(PLAIN, value)
    mask = mask_of(case, "top_left")
    assert (getattr(mask, feature.name), mask.alignment) == (getattr(case, feature.name), "top_left")


@each(lambda feature: feature.values if feature.part is Part.VARIANT else ())
def test_the_variant_has_the_value(feature, value):
    assert getattr(variant_of(feature.changed(PLAIN, value), "top_left", build(PLAIN, "cpu")), feature.name) == value


def test_the_variant_has_the_mask_the_bias_and_the_sinks():
    case = PLAIN.but(causal=True, bias="vector", sinks="count")
    x = build(case, "cpu")
    variant = variant_of(case, "top_left", x)
    assert variant.mask == mask_of(case, "top_left") and variant.bias is x.bias and variant.sinks is x.sinks


def test_every_part_of_the_variant_is_a_feature():
    """If a part were not a feature, the oracle would have a feature that no case has."""
    parts = {part: {f.name for f in FEATURES.values() if f.part is part} for part in Part}
    assert parts[Part.MASK] == {f.name for f in fields(Mask)} - {"alignment"}  # declared as causal_alignment
    assert parts[Part.VARIANT] == {f.name for f in fields(Variant)} - {"mask", "bias", "sinks", "hidden"}


# --- documentation --------------------------------------------------------------------------------


def test_the_table_in_the_docs_is_the_table_of_features():
    table = re.search(r"<!-- features -->\n(.*)\n<!-- /features -->", DOCS.read_text(), re.S)
    assert table and table[1] == documentation(), "python -m flash_attest.properties.cases.features prints the table"


def test_the_table_has_a_row_for_every_declared_feature():
    rows = [line.split(" | ")[0].removeprefix("| ") for line in documentation().splitlines()[2:]]
    assert rows == [feature.name for feature in FEATURES.values() if feature.declare]
