"""Without Triton, and in its interpreter: what is refused and why, and what the interpreter is sped up by."""

from __future__ import annotations

import re

import pytest
import torch

import impls.triton as triton_fa2
from impls.contract import OUTPUTS
from impls.registry import ours
from impls.triton.interpreter import installed
from properties.cases.case import parse_case
from properties.judging.judge import judge
from properties.judging.plan import Plan
from properties.judging.verdict import REFUSED
from properties.law import laws
from tests.impls.runs import python, results

REASON = "Triton is not installed: pip install triton"
with_triton = pytest.mark.skipif(not installed(), reason="Triton is not installed")


# --- Triton is not installed ------------------------------------------------------------------------------------------


WITHOUT = ("python_tiled", "torch_math", *triton_fa2.NAMES)  # that the others load is a test below


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    report = tmp_path_factory.mktemp("without")
    laws = [f"properties/test_{chapter}.py" for chapter in ("contract", "forward")]
    quick = ["--device", "cpu", "--hypothesis-profile", "quick", "--report", report, "-p", "no:randomly"]
    asked = ["--impl", ",".join(WITHOUT)]
    run = python("-m", "pytest", "-p", "tests.plugins.without_triton", *quick, *asked, *laws)
    return run, report


def test_without_triton_its_implementations_are_refused(without):
    """Each once, by name and with the reason: there is nothing to judge by a law."""
    _, report = without
    of_triton = {key: entry for key, entry in results(report).items() if "triton" in key[1]}
    assert set(of_triton) == {("test_contract_is_kept", name) for name in triton_fa2.NAMES}
    assert {(entry["verdict"], entry["reason"]) for entry in of_triton.values()} == {("refused", REASON)}


def test_without_triton_the_table_gives_the_reason(without):
    run, _ = without
    for name in triton_fa2.NAMES:
        assert re.search(rf"^\s*{name}\s+contract\s+.*\b1 refused\b", run.stdout, re.M), run.stdout
    assert REASON in run.stdout, run.stdout


def test_without_triton_nothing_else_changes(without):
    run, report = without
    verdicts = {entry["verdict"] for entry in results(report).values()}
    assert run.returncode == 0, run.stdout + run.stderr
    assert "fail" not in verdicts
    assert results(report)[("test_out_matches_the_definition", "python_tiled")]["verdict"] == "pass"
    assert results(report)[("test_out_matches_the_definition", "torch_math")]["verdict"] == "pass"


def test_without_triton_every_tile_is_refused_too_and_all_others_load():
    program = """if True:
        import tests.plugins.without_triton
        from impls.registry import from_file, ours
        import sys
        entries = from_file("impls/triton/every_tile.py") + ours()
        print({e.impl.reason for e in entries if "triton" in e.name})
        print([e.name for e in entries if type(e.impl).__name__ == "Unloadable"], "triton" in sys.modules)"""
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [str({REASON}), "[] False"]


@with_triton
def test_names_are_those_of_the_implementations():
    """So the command line knows a name whether Triton is installed or not."""
    assert {impl.name for impl in triton_fa2.IMPLS} <= set(triton_fa2.NAMES)


# --- the interpreter --------------------------------------------------------------------------------------------------


@with_triton
def test_importing_triton_first_is_a_clear_error_and_does_not_affect_other_implementations():
    """Triton then cannot interpret its own library; the kernels would fail far from the cause."""
    program = """if True:
        import triton, os
        os.environ["TRITON_INTERPRET"] = "1"
        from impls.registry import ours
        print([(e.name, type(e.impl).__name__) for e in ours()])
        import impls.triton"""
    run = python("-c", program)
    assert run.returncode == 1
    words = "ImportError: triton was imported before TRITON_INTERPRET=1 was set: set it before Python starts"
    assert run.stderr.strip().splitlines()[-1] == words
    assert "('triton', 'Unloadable')" in run.stdout and "('torch_math', 'Implementation')" in run.stdout


@with_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the kernels are compiled")
def test_importing_triton_first_without_a_gpu_is_the_same_error():
    run = python("-c", "import triton; import impls.triton")
    assert run.returncode == 1 and "triton was imported before TRITON_INTERPRET=1 was set" in run.stderr


@with_triton
def test_the_environment_variable_set_to_0_compiles():
    """As on a machine with a GPU: all names are then implementations, on cuda."""
    program = "from impls import triton; print({d for i in triton.IMPLS for d in i.devices}, " \
        "sorted(i.name for i in triton.IMPLS) == sorted(triton.NAMES))"  # fmt: skip
    assert python("-c", program, TRITON_INTERPRET="0").stdout.strip() == "{'cuda'} True"


@with_triton
@pytest.mark.parametrize("value", ["1", pytest.param("true", marks=pytest.mark.thorough)])
def test_the_environment_variable_set_to_1_interprets_and_bfloat16_is_refused_with_the_reason(value):
    program = """if True:
        import torch
        from impls.triton import IMPLS
        print({d for i in IMPLS for d in i.devices}, {torch.bfloat16 in i.supports.dtypes for i in IMPLS})
        x = torch.zeros(1, 2, 1, 4, dtype=torch.bfloat16)
        IMPLS[0].forward(x, x, x)"""
    run = python("-c", program, TRITON_INTERPRET=value)
    assert run.stdout.strip() == "{'cpu'} {False}"
    words = "ValueError: q is torch.bfloat16: Triton's interpreter computes bfloat16 wrongly; use float16 or float32"
    assert run.stderr.strip().splitlines()[-1] == words


@with_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="compiled here, not interpreted")
def test_a_bfloat16_case_is_refused_by_the_suite():
    """No law takes it, so a run with --case is red (tests/properties/test_options.py)."""
    law, impl = laws()["test_out_matches_the_definition"], triton_fa2.IMPLS[0]
    result = judge(law, impl, Plan(case=parse_case("dtype=bfloat16 seqlen_q=4"), try_contract=False))
    assert (result.verdict, result.reason) == (REFUSED, "dtype bfloat16 is not in what triton_fa2 supports")


@with_triton
def test_dq_summed_by_atomics_is_not_promised_to_be_repeatable():
    repeatable = {impl.name: set(impl.repeatable) for impl in triton_fa2.IMPLS}
    assert repeatable["triton_fa2"] == set(OUTPUTS)
    assert repeatable["triton_fa2_atomic"] == set(OUTPUTS) - {"dq"}


@with_triton
def test_registry_has_the_triton_implementations():
    names = {entry.name for entry in ours()}
    assert {impl.name for impl in triton_fa2.IMPLS} <= names


# --- what is removed from Triton's interpreter -------------------------------------------------------------------------


@with_triton
def test_interpreter_has_the_internals_that_make_quick_replaces():
    """If this fails, a new Triton has other internals, and interpreted kernels run at half the speed."""
    from triton.runtime import interpreter

    version = f"triton {__import__('triton').__version__}"
    assert callable(getattr(interpreter, "_patch_lang", None)), version
    assert hasattr(interpreter.InterpretedFunction, "rewrite"), version
    assert hasattr(interpreter.interpreter_builder.options, "sanitize_overflow"), version


@with_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="compiled here, not interpreted")
def test_a_launch_patches_each_module_once(monkeypatch):
    """Not for every call of a helper, of which one launch has a hundred."""
    from triton.runtime import interpreter

    patched = []
    original = interpreter._patch_builtin
    monkeypatch.setattr(interpreter, "_patch_builtin", lambda *args: patched.append(1) or original(*args))
    q = torch.randn(1, 200, 2, 16)
    triton_fa2.IMPLS[0].forward(q, q, q)
    assert 0 < len(patched) < 60
