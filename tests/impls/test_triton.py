"""Where Triton is not, or cannot interpret: what the suite says then. And what is judged on a share of the cases."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import impls.triton as triton_fa2
from impls import Absent, ContractError, torch_math
from impls.contract import OUTPUTS
from impls.registry import Entry, from_file, from_hook, ours, select
from impls.triton.interpreter import installed
from properties.cases.strategies import Limits
from properties.judging.plan import Plan
from properties.judging.verdict import REFUSED
from properties.plugin.session import Judge

ROOT = Path(__file__).parents[2]
REASON = "Triton is not installed: pip install triton"
with_triton = pytest.mark.skipif(not installed(), reason="Triton is not installed")


def python(*arguments, **environment):
    """Run Python in the root of the repository; TRITON_INTERPRET is unset unless given."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "HYPOTHESIS", "TRITON_INTERPRET"))
    }
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env=inherited | {"COLUMNS": "160", "OMP_NUM_THREADS": "1"} | environment,
    )  # fmt: skip


def results(report):
    """(law, impl) -> its entry in results.json."""
    entries = json.loads((report / "results.json").read_text())["results"]
    return {(entry["law"], entry["impl"]): entry for entry in entries}


# --- Triton is not installed ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    report = tmp_path_factory.mktemp("without")
    laws = [f"properties/test_{chapter}.py" for chapter in ("contract", "forward")]
    quick = ["--device", "cpu", "--hypothesis-profile", "quick", "--report", report, "-p", "no:randomly"]
    run = python("-m", "pytest", "-p", "tests.plugins.without_triton", *quick, *laws)
    return run, report


def test_without_triton_its_implementations_are_refused(without):
    """By name, with the reason, once each: there is nothing to judge by a law."""
    _, report = without
    of_triton = {key: entry for key, entry in results(report).items() if "triton" in key[1]}
    assert set(of_triton) == {("test_contract_is_kept", name) for name in triton_fa2.NAMES}
    assert {(entry["verdict"], entry["reason"]) for entry in of_triton.values()} == {("refused", REASON)}


def test_without_triton_the_table_says_so(without):
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


def test_without_triton_every_tile_is_refused_too():
    program = "import tests.plugins.without_triton; from impls.registry import from_file; import sys, torch; " \
        "print(from_file('impls/triton/every_tile.py'), 'triton' in sys.modules)"  # fmt: skip
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
    assert REASON in run.stdout and "Unloadable" not in run.stdout and run.stdout.strip().endswith("False")


@with_triton
def test_the_names_are_those_of_the_implementations():
    """Absent or not, a name on the command line is known."""
    assert {impl.name for impl in triton_fa2.IMPLS} <= set(triton_fa2.NAMES)
    program = "from impls import triton; print(sorted(i.name for i in triton.IMPLS) == sorted(triton.NAMES))"
    assert python("-c", program, TRITON_INTERPRET="0").stdout.strip() == "True"  # as where there is a GPU


# --- an Absent through every door -------------------------------------------------------------------------------------

GONE = Absent("gone", "its compiler is not installed")


def test_an_absent_comes_through_a_file(tmp_path):
    file = tmp_path / "gone.py"
    file.write_text('from impls import Absent\nIMPL = Absent("gone", "its compiler is not installed")\n')
    (entry,) = from_file(str(file))
    assert entry.impl == GONE and entry.name == "gone"


def test_an_absent_comes_through_the_hook():
    assert [entry.impl for entry in from_hook([[GONE], GONE])] == [GONE, GONE]


def test_an_absent_is_selected_by_its_name():
    entries = [Entry(GONE, "gone.py"), Entry(torch_math.IMPL, "torch_math.py")]
    assert select(entries, "gone") == entries[:1]


def test_an_absent_is_refused_and_not_run():
    judge = Judge.__new__(Judge)
    judge.plan = Plan(device="cpu")
    result = Judge.contract(judge, GONE)
    assert (result.verdict, result.reason, result.message) == (REFUSED, GONE.reason, "")


# --- share ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "share", (0, -1, 1.5, "all", None, float("nan"), {"cpu": 0}, {"cpu": None}, {"gpu": 0.5}, {"cpu": {"cpu": 0.5}})
)
def test_a_share_is_a_part(share):
    with pytest.raises(ContractError, match=re.escape(f"share={share!r}: should be a number above 0, at most 1")):
        replace(torch_math.IMPL, share=share)


def test_a_share_of_the_cases_and_repeats_is_run():
    plan, whole, tenth = Plan(examples=60, repeats=100), torch_math.IMPL, replace(torch_math.IMPL, share=0.1)
    assert (plan.cases_for(whole, 1.0), plan.cases_for(whole, 0.5), plan.repeats_for(whole)) == (60, 30, 100)
    assert (plan.cases_for(tenth, 1.0), plan.cases_for(tenth, 0.5), plan.repeats_for(tenth)) == (6, 3, 10)
    least = replace(torch_math.IMPL, share=0.001)
    assert (plan.cases_for(least, 1.0), plan.repeats_for(least)) == (2, 2)


def test_a_share_may_be_for_one_device():
    """Slow on the CPU, and nothing of the kind on a GPU."""
    on_cpu, on_cuda = Plan(examples=60, repeats=100), Plan(device="cuda", examples=60, repeats=100)
    slow = replace(torch_math.IMPL, share={"cpu": 0.1})
    assert (slow.share_on("cpu"), slow.share_on("cuda"), replace(slow, share={}).share_on("cpu")) == (0.1, 1.0, 1.0)
    assert replace(slow, share=0.5).share_on("cpu") == replace(slow, share=0.5).share_on("cuda") == 0.5
    assert (on_cpu.cases_for(slow, 1.0), on_cpu.repeats_for(slow)) == (6, 10)
    assert (on_cuda.cases_for(slow, 1.0), on_cuda.repeats_for(slow)) == (60, 100)


def test_a_share_of_the_elements_is_drawn():
    assert Limits.on("cpu", 0.1).elements == Limits.on("cpu").elements // 10
    assert Limits.on("cpu", 0.1).seqlen == Limits.on("cpu").seqlen


def test_results_show_the_share(tmp_path):
    """A tenth of the cases of its twin, in a run."""
    file = tmp_path / "twins.py"
    file.write_text(
        "from dataclasses import replace\nfrom impls import torch_math\n"
        "IMPLS = [replace(torch_math.IMPL, name='whole'), replace(torch_math.IMPL, name='tenth', share=0.1)]\n"
    )
    run = python("-m", "pytest", f"--impl-from={file}", "--device", "cpu", "--hypothesis-profile", "default",
                 "--report", tmp_path / "report", "properties/test_forward.py", "-k", "lse")  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    cases = {name: entry["cases"] for (_, name), entry in results(tmp_path / "report").items()}
    assert cases == {"whole": 60, "tenth": 6}


# --- the interpreter --------------------------------------------------------------------------------------------------


@with_triton
def test_triton_imported_before_is_an_error_in_words():
    """It cannot interpret its own library then; the kernels would fail far from the cause."""
    program = "import triton, os; os.environ['TRITON_INTERPRET'] = '1'; import impls.triton"
    run = python("-c", program)
    assert run.returncode == 1
    words = "ImportError: triton was imported before TRITON_INTERPRET=1 was set: set it before Python starts"
    assert run.stderr.strip().splitlines()[-1] == words


@with_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the kernels are compiled")
def test_triton_imported_before_without_a_gpu_is_the_same_error():
    run = python("-c", "import triton; import impls.triton")
    assert run.returncode == 1 and "triton was imported before TRITON_INTERPRET=1 was set" in run.stderr


@with_triton
def test_triton_imported_before_stops_no_other_implementation():
    program = "import triton, os; os.environ['TRITON_INTERPRET'] = '1'; from impls.registry import ours, Unloadable; " \
        "print([(e.name, type(e.impl).__name__) for e in ours()])"  # fmt: skip
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
    assert "('triton', 'Unloadable')" in run.stdout and "('torch_math', 'Implementation')" in run.stdout


@with_triton
@pytest.mark.parametrize("value, device", [("1", "cpu"), ("true", "cpu"), ("0", "cuda")])
def test_the_variable_decides_where_it_runs(value, device):
    program = "from impls import triton; print({d for i in triton.IMPLS for d in i.devices})"
    assert python("-c", program, TRITON_INTERPRET=value).stdout.strip() == str({device})


@with_triton
def test_bfloat16_is_refused_in_the_interpreter_with_the_reason():
    program = """if True:
        import torch
        from impls.triton import IMPLS
        assert all(torch.bfloat16 not in impl.supports.dtypes for impl in IMPLS)
        x = torch.zeros(1, 2, 1, 4, dtype=torch.bfloat16)
        IMPLS[0].forward(x, x, x)"""
    run = python("-c", program, TRITON_INTERPRET="1")
    words = "ValueError: q is torch.bfloat16: Triton's interpreter computes bfloat16 wrongly; use float16 or float32"
    assert run.stderr.strip().splitlines()[-1] == words


@with_triton
def test_a_bfloat16_case_is_refused_by_the_suite(tmp_path):
    run = python("-m", "pytest", "--impl", "triton_fa2", "--device", "cpu", "--report", tmp_path, "--case",
                 "dtype=bfloat16 seqlen_q=4", "properties/test_forward.py", TRITON_INTERPRET="1")  # fmt: skip
    entry = results(tmp_path)[("test_out_matches_the_definition", "triton_fa2")]
    assert (entry["verdict"], entry["reason"]) == ("refused", "dtype bfloat16 is not in what triton_fa2 supports")
    assert run.returncode == 1 and "no law took the case" in run.stdout


@with_triton
def test_what_adds_by_atomics_does_not_promise_dq_to_be_repeatable():
    repeatable = {impl.name: set(impl.repeatable) for impl in triton_fa2.IMPLS}
    assert repeatable["triton_fa2"] == set(OUTPUTS)
    assert repeatable["triton_fa2_atomic"] == set(OUTPUTS) - {"dq"}


@with_triton
def test_ours_has_them():
    names = {entry.name for entry in ours()}
    assert {impl.name for impl in triton_fa2.IMPLS} <= names


# --- what is taken out of Triton's interpreter ------------------------------------------------------------------------


@with_triton
def test_interpreter_still_has_what_makes_it_slow():
    """A canary: where this fails, a new Triton has other internals, and interpreted kernels run at half the speed."""
    from triton.runtime import interpreter

    version = f"triton {__import__('triton').__version__}"
    assert callable(getattr(interpreter, "_patch_lang", None)), version
    assert hasattr(interpreter.InterpretedFunction, "rewrite"), version
    assert hasattr(interpreter.interpreter_builder.options, "sanitize_overflow"), version


@with_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="compiled here, not interpreted")
def test_a_launch_patches_each_module_once(monkeypatch):
    """And not for every call of a helper: there are a hundred of them in one launch."""
    from triton.runtime import interpreter

    patched = []
    original = interpreter._patch_builtin
    monkeypatch.setattr(interpreter, "_patch_builtin", lambda *args: patched.append(1) or original(*args))
    q = torch.randn(1, 200, 2, 16)
    triton_fa2.IMPLS[0].forward(q, q, q)
    assert 0 < len(patched) < 60
