"""Without Triton, and with its interpreter, our kernels are refused with the reason."""

from __future__ import annotations

import re

import pytest
import torch

from flash_attest.impls import Implementation
from flash_attest.impls import triton as triton_fa2
from flash_attest.impls.contract.record import OUTPUTS
from flash_attest.impls.contract.registry import ours
from flash_attest.impls.triton.device import lacking
from tests.impls.runs import results
from tests.runs import python

REASON = "Triton is not installed: pip install 'flash-attest[triton]'"
with_triton = pytest.mark.skipif(bool(lacking()), reason=lacking())


# --- Triton is not installed ----------------------------------------------------------------------


WITHOUT = ("python_tiled", "torch_math", *triton_fa2.NAMES)  # a test below shows that all others load


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    report = tmp_path_factory.mktemp("without")
    laws = [f"properties/test_{chapter}.py" for chapter in ("contract", "forward")]
    smoke = ["--device", "cpu", "--hypothesis-profile", "smoke", "--report", report, "-p", "no:randomly"]
    asked = ["--impl", ",".join(WITHOUT)]
    run = python("-m", "pytest", "-p", "tests.plugins.without_triton", *smoke, *asked, *laws)
    return run, report


def test_without_triton_its_implementations_are_refused(without):
    """Each is refused once, by name and with the reason, because there is nothing that a law could
    judge.
    """
    _, report = without
    of_triton = {key: entry for key, entry in results(report).items() if "triton" in key[1]}
    assert set(of_triton) == {("test_contract_is_kept", name) for name in triton_fa2.NAMES}
    assert {(entry["verdict"], entry["reason"]) for entry in of_triton.values()} == {("refused", REASON)}


def test_without_triton_the_table_gives_the_reason(without):
    run, _ = without
    for name in triton_fa2.NAMES:
        assert re.search(rf"^{name} +refused +1 +0 ", run.stdout, re.M), run.stdout
    assert f"not judged here: {', '.join(sorted(triton_fa2.NAMES))} ({REASON})\n" in run.stdout, run.stdout


def test_without_triton_nothing_else_changes(without):
    run, report = without
    verdicts = {entry["verdict"] for entry in results(report).values()}
    named = f"not green: nothing was judged of triton_fa2: {REASON}, of triton_fa2_atomic: {REASON}, of "
    assert run.returncode == 1 and f"\n{named}" in run.stdout, run.stdout + run.stderr  # they were asked for by name
    assert "fail" not in verdicts
    assert results(report)[("test_out_matches_the_definition", "python_tiled")]["verdict"] == "pass"
    assert results(report)[("test_out_matches_the_definition", "torch_math")]["verdict"] == "pass"


def test_without_triton_every_tile_is_refused_too_and_all_others_load():
    program = """if True:
        import tests.plugins.without_triton
        from flash_attest.impls.contract.loading import from_file
        from flash_attest.impls.contract.registry import ours
        import sys
        entries = from_file("impls/triton/every_tile.py") + ours()
        print({e.impl.reason for e in entries if "triton" in e.name})
        print([e.name for e in entries if type(e.impl).__name__ == "Unloadable"], "triton" in sys.modules)"""
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [str({REASON}), "[] False"]


@with_triton
def test_names_are_those_of_the_implementations():
    """The command line thus knows the names whether Triton is installed or not."""
    assert {impl.name for impl in triton_fa2.IMPLS} <= set(triton_fa2.NAMES)


# --- TRITON_INTERPRET, and the order of imports ---------------------------------------------------


@with_triton
@pytest.mark.parametrize("value", ["1", pytest.param("true", marks=pytest.mark.thorough)])
def test_with_the_interpreter_our_kernels_are_refused_with_the_reason(value):
    """The interpreter's bfloat16 is wrong, and it does not show what the compiler produces."""
    program = """if True:
        from flash_attest.impls import triton
        print(*{impl.reason for impl in triton.IMPLS}, len(triton.IMPLS))
        from flash_attest.impls.triton.functions import flash_attn_func"""
    run = python("-c", program, TRITON_INTERPRET=value)
    words = "TRITON_INTERPRET is set: unset it; without a GPU the kernels run compiled, in the emulator"
    assert run.stdout.strip() == f"{words} {len(triton_fa2.NAMES)}"
    assert run.returncode == 1 and run.stderr.strip().splitlines()[-1] == f"ImportError: {words}"


@with_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU kernels run there")
@pytest.mark.parametrize("value", ["0", pytest.param("", marks=pytest.mark.thorough)])
def test_importing_triton_first_changes_nothing(value):
    program = """if True:
        import triton
        from flash_attest.impls import triton as ours
        from flash_attest.emulator.triton import is_active
        print({d for i in ours.IMPLS for d in getattr(i, "devices", ())}, [i.name for i in ours.IMPLS], is_active())"""
    run = python("-c", program, TRITON_INTERPRET=value)
    assert run.stdout.strip() == f"{{'cpu'}} {list(triton_fa2.NAMES)} True", run.stderr


@with_triton
def test_dq_summed_by_atomics_is_not_repeatable():
    repeatable = {impl.name: set(impl.repeatable) for impl in triton_fa2.IMPLS if isinstance(impl, Implementation)}
    assert repeatable["triton_fa2"] == set(OUTPUTS)
    assert repeatable["triton_fa2_atomic"] == set(OUTPUTS) - {"dq"}


@with_triton
def test_registry_has_the_triton_implementations():
    names = {entry.name for entry in ours()}
    assert {impl.name for impl in triton_fa2.IMPLS} <= names
