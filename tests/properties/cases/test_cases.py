"""Cases are printed, parsed and changed; tensors depend only on the case."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flash_attest.properties.cases.case import (
    ADDED,
    BIAS_MASKS,
    BOOLEAN,
    DTYPES,
    LAYOUTS,
    REGIMES,
    Case,
    CaseError,
    parse_case,
)
from flash_attest.properties.cases.inputs import build
from tests.runs import python

QUIET = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


# --- Case: printing, parsing, changing ------------------------------------------------------------


@QUIET
@given(st.builds(
    Case, seqlen_q=st.integers(0, 200), seqlen_k=st.integers(0, 200), headdim=st.integers(1, 256),
    dtype=st.sampled_from(list(DTYPES.values())), bias_dtype=st.sampled_from(list(DTYPES.values())),
    causal=st.booleans(), bias=st.sampled_from((None, *ADDED)), bias_mask=st.sampled_from(BIAS_MASKS),
    softmax_scale=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    regime=st.sampled_from(REGIMES), layout=st.sampled_from(LAYOUTS), seed=st.integers(0, 2**40),
))  # fmt: skip
def test_a_printed_case_parses_to_the_same_case(case):
    assert parse_case(str(case)) == case


@pytest.mark.parametrize("kind", BOOLEAN)
def test_a_printed_case_with_a_boolean_mask_parses_to_the_same_case(kind):
    case = Case(seqlen_q=3, seqlen_k=5, bias=kind, bias_mask="right")
    assert parse_case(str(case)) == case and f"bias={kind}" in str(case)


def test_multi_query_attention_parses_to_the_same_case():
    """nheads_k=1 is printed although it is a default value, because an omitted nheads_k would
    follow nheads.
    """
    case = Case(seqlen_q=3, seqlen_k=3, nheads=4, nheads_k=1)
    assert parse_case(str(case)) == case


def test_a_case_prints_its_sizes_and_the_changed_fields():
    case = Case(seqlen_q=65, seqlen_k=65, headdim=40, dtype=torch.float16, causal=True, softmax_scale=0.5)
    assert str(case) == "seqlen_q=65 seqlen_k=65 headdim=40 dtype=float16 causal=True softmax_scale=0.5"


def test_repr_of_a_case_is_one_line():
    assert repr(Case()) == "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float32"


@pytest.mark.parametrize(
    ("text", "follower", "value"),
    [("seqlen_q=65", "seqlen_k", 65), ("seqlen_k=7", "seqlen_q", 7), ("nheads=3", "nheads_k", 3)],
)
def test_an_omitted_size_follows_its_partner(text, follower, value):
    assert getattr(parse_case(text), follower) == value


@pytest.mark.parametrize("text", ["causal=true", "causal=True", "causal=1"])
def test_booleans_have_several_spellings(text):
    assert parse_case(text).causal is True


def test_dtypes_may_have_the_prefix_torch():
    assert parse_case("dtype=torch.bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seqlen=65", "there is no field 'seqlen'; the fields are batch, seqlen_q, seqlen_k"),
        ("seqlen_q=65,headdim=64", "seqlen_q=65,headdim=64: fields are separated by spaces, not by commas"),
        ("causal", "'causal' is not of the form field=value"),
        ("batch=2 batch=3", "batch is given twice"),
        ("headdim=0", "headdim=0: should be at least 1"),
        ("seqlen_q=-1", "seqlen_q=-1: should be at least 0"),
        ("seqlen_q=1.5", "seqlen_q=1.5: should look like seqlen_q=1"),
        ("causal=maybe", "causal=maybe: should look like causal=False"),
        ("dtype=float8", "dtype=float8: should be one of float32, float16, bfloat16"),
        ("bias=diagonal", "bias=diagonal: should be one of None, vector, matrix"),
        ("regime=wild", "regime=wild: should be one of spread, peaked"),
        ("layout=strided", "layout=strided: should be one of contiguous, transposed"),
        ("bias_mask=all", "bias_mask=all: should be one of none, right, left"),
        ("nheads=3 nheads_k=2", "nheads_k=2: should divide nheads=3"),
        ("batch=3 bias_batch=2", "bias_batch=2: should be 1 or batch=3"),
        ("nheads=3 bias_nheads=2", "bias_nheads=2: should be 1 or nheads=3"),
        ("softmax_scale=inf", "softmax_scale=inf: should be finite"),
        ("softmax_scale=big", "softmax_scale=big: should be a number or None"),
    ],
)
def test_an_error_names_the_field_and_its_value(text, words):
    with pytest.raises(CaseError, match=re.escape(words)) as caught:
        parse_case(text)
    assert str(caught.value).startswith("--case: ")


def test_every_problem_of_a_case_is_named():
    with pytest.raises(CaseError, match=r"batch=0.*headdim=0.*regime=wild"):
        Case(batch=0, headdim=0, regime="wild")


def test_default_scale_is_one_over_the_root_of_headdim():
    assert Case(headdim=64).scale == 0.125 and Case(softmax_scale=0.0).scale == 0.0


@pytest.mark.parametrize(
    ("bias", "shape"), [("vector", (2, 1, 1, 7)), ("matrix", (2, 1, 5, 7))]
)  # fmt: skip
def test_bias_shape_is_1_where_the_bias_is_broadcast(bias, shape):
    case = Case(batch=2, seqlen_q=5, seqlen_k=7, nheads=3, nheads_k=3, bias=bias, bias_batch=2)
    assert case.bias_shape == shape


BIASED = Case(batch=2, nheads=6, nheads_k=3, bias="vector", bias_batch=2, bias_nheads=6)
IN_HALF = replace(BIASED, dtype=torch.float16, bias_dtype=torch.float16)


@pytest.mark.parametrize(
    ("case", "changed", "fields_after"),
    [
        (BIASED, dict(batch=3), dict(bias_batch=3, bias_nheads=6)),
        (BIASED, dict(batch=1), dict(bias_batch=1)),
        (BIASED, dict(nheads=9), dict(nheads_k=3, bias_nheads=9)),  # 3 divides 9, so nheads_k stays
        (BIASED, dict(nheads=4), dict(nheads_k=4, bias_nheads=4)),
        (BIASED, dict(nheads=3, nheads_k=1), dict(nheads_k=1, bias_nheads=3)),
        (BIASED, dict(bias_batch=1, batch=5), dict(bias_batch=1)),
        (BIASED, dict(dtype=torch.bfloat16), dict(bias_dtype=torch.float32)),
        (IN_HALF, dict(dtype=torch.float32), dict(bias_dtype=torch.float32)),
        (IN_HALF, dict(dtype=torch.bfloat16), dict(bias_dtype=torch.bfloat16)),
        (IN_HALF, dict(seqlen_q=3), dict(bias_dtype=torch.float16)),
        (Case(batch=2, nheads=3, nheads_k=3, bias="matrix"), dict(batch=4), dict(bias_batch=1, bias_nheads=1)),
    ],
)
def test_dependent_sizes_follow_a_change(case, changed, fields_after):
    other = case.but(**changed)
    assert {name: getattr(other, name) for name in fields_after} == fields_after


def test_other_fields_do_not_change():
    case = Case(seqlen_q=5, causal=True, seed=3)
    assert case.but(seqlen_q=6) == replace(case, seqlen_q=6)


# --- tensors depend on the case only --------------------------------------------------------------


def fingerprint(text: str) -> str:
    """Return the exact sum of the elements of each input."""
    return " ".join(f"{name}={t.double().sum().item().hex()}" for name, t in build(parse_case(text), "cpu").items())


def test_the_same_case_has_the_same_tensors_in_another_process():
    text = "batch=2 seqlen_q=9 seqlen_k=17 nheads=3 headdim=5 bias=matrix bias_mask=left regime=peaked seed=7"
    script = (
        "import torch; torch.rand(9); from tests.properties.cases.test_cases import fingerprint; "
        f"print(fingerprint({text!r}), end='')"
    )
    assert python("-c", script).stdout == fingerprint(text)


def test_another_seed_gives_other_tensors():
    a, b = (build(Case(seqlen_q=9, seqlen_k=9, seed=n), "cpu") for n in (0, 1))
    assert not any(torch.equal(getattr(a, name), getattr(b, name)) for name in ("q", "k", "v", "dout"))


def test_inputs_of_a_case_differ_from_each_other():
    """Equal inputs, such as q = k or dout = v, would hide an implementation that confuses them."""
    x = build(Case(seqlen_q=9, seqlen_k=9), "cpu")
    tensors = [x.q, x.k, x.v, x.dout]
    assert not any(torch.equal(a, b) for n, a in enumerate(tensors) for b in tensors[:n])
