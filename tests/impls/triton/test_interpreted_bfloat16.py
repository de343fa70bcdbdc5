"""Interpreted Triton in bfloat16: unknown, because a probe shows that the interpreter computes it wrongly."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from impls import interpretation
from impls.interpretation import bfloat16_defect, bfloat16_launches
from impls.registry import from_file
from impls.triton.interpreter import installed
from properties.cases.case import parse_case
from properties.failures import Reason
from properties.judging import conformance
from properties.judging.judge import judge
from properties.judging.plan import Plan
from properties.judging.verdict import FAIL, PASS, UNKNOWN
from properties.law import laws
from properties.plugin.reporter import not_green
from properties.trial import Trial
from tests.impls.runs import ROOT

pytestmark = [
    pytest.mark.skipif(not installed(), reason="Triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="compiled here, not interpreted"),
    pytest.mark.usefixtures("one_thread"),
]
LAW = laws()["test_out_matches_the_definition"]
DTYPES = ("float32", "float16", "bfloat16")
WORDS = "computes bfloat16 wrongly: with x = 3, x * x is "


@pytest.fixture(scope="module")
def plugins():
    """name -> the implementation, loaded as --impl-from loads it."""
    entries = from_file(str(ROOT / "tests" / "plugins" / "interpreted.py"))
    return {entry.name: entry.impl for entry in entries}


def verdict_in(impl, dtype):
    return judge(LAW, impl, Plan(case=parse_case(f"seqlen_q=17 headdim=16 dtype={dtype}"), try_contract=False))


def test_only_bfloat16_is_unknown(plugins):
    results = {dtype: verdict_in(plugins["in_operands"], dtype) for dtype in DTYPES}
    assert {dtype: r.verdict for dtype, r in results.items()} == dict(float32=PASS, float16=PASS, bfloat16=UNKNOWN)
    assert WORDS in results["bfloat16"].reason and "tl.dot(x, x) is " in results["bfloat16"].reason
    assert results["bfloat16"].why is Reason.INTERPRETER


def test_a_law_goes_on_in_the_other_dtypes(plugins, monkeypatch):
    dtypes = []
    build = Trial.run
    monkeypatch.setattr(Trial, "run", lambda trial, *x, **o: dtypes.append(trial.case.dtype) or build(trial, *x, **o))
    result = judge(LAW, plugins["in_operands"], Plan(examples=100))
    assert (result.verdict, result.why, result.cases) == (UNKNOWN, Reason.INTERPRETER, 10)
    assert WORDS in result.reason and result.reason.endswith("; 10 cases of other dtypes hold")
    assert {torch.float32, torch.float16} <= set(dtypes) and dtypes.count(torch.bfloat16) == 1
    assert not_green([result.as_dict()], asked_for=True, replayed=False) == "1 could not be decided"


def test_a_failure_in_another_dtype_is_a_failure(plugins):
    impl = plugins["in_operands"]
    off = replace(impl, forward=lambda q, k, v: impl.forward(q, k, v) + (0.5 if q.dtype == torch.float16 else 0))
    assert judge(LAW, off, Plan(examples=100, try_contract=False)).verdict == FAIL


def test_nothing_but_bfloat16_is_unknown_too(plugins):
    supports = replace(plugins["in_operands"].supports, dtypes={torch.bfloat16})
    impl = replace(plugins["in_operands"], supports=supports)
    assert conformance.problems(impl, "cpu") == []
    result = judge(LAW, impl, Plan(examples=20))
    assert (result.verdict, result.why) == (UNKNOWN, Reason.INTERPRETER) and WORDS in result.reason


def test_the_contract_is_checked_in_bfloat16_but_for_values(plugins):
    impl = plugins["in_operands"]
    assert conformance.problems(impl, "cpu") == []
    wider = replace(impl, forward=lambda q, k, v: impl.forward(q, k, v).float())
    problems = conformance.problems(wider, "cpu")
    assert any("should be torch.bfloat16" in problem for problem in problems)


def test_kernels_that_see_float32_only_are_judged(plugins):
    assert verdict_in(plugins["in_float32"], "bfloat16").verdict == PASS


def test_without_a_defect_bfloat16_is_judged(plugins, monkeypatch):
    """And with this Triton fails: the false alarm that the probe prevents."""
    monkeypatch.setattr("properties.trial.bfloat16_defect", lambda: "")
    assert verdict_in(plugins["in_operands"], "bfloat16").verdict == FAIL


def test_the_probe_says_nothing_where_products_are_right(monkeypatch):
    from impls import interpreted_products

    assert WORDS in interpreted_products.defect()
    monkeypatch.setattr(interpreted_products.torch, "bfloat16", torch.float16)
    assert interpreted_products.defect() == ""


def test_launches_are_noted_by_their_tensors(plugins):
    x = torch.ones(1, 3, 1, 16)
    with bfloat16_launches() as launched:
        plugins["in_operands"].forward(x, x, x)
        assert launched == []
        plugins["in_operands"].forward(*3 * [x.bfloat16()])
    assert launched == ["attend"]
    plugins["in_operands"].forward(*3 * [x.bfloat16()])
    assert len(launched) == 1 and bfloat16_defect()


def test_an_interpreter_that_the_call_imports_is_noticed(monkeypatch):
    """Its first launches were not seen, so every kernel that it has run counts."""
    name = "tests.no_interpreter"
    monkeypatch.setattr(interpretation, "INTERPRETER", name)
    with bfloat16_launches() as launched:
        assert launched == []
    assert launched == []
    with bfloat16_launches() as launched:
        kernels = {lambda: None: None}
        loaded = SimpleNamespace(InterpretedFunction=SimpleNamespace(rewritten_fn=kernels))
        monkeypatch.setitem(interpretation.sys.modules, name, loaded)
    assert launched == ["<lambda>"]
