"""Functions that a call replaces: which of them count, and that they are restored."""

import contextlib
import functools
import json
import sys
import types

import torch
from hypothesis.internal.conjecture.providers import HypothesisProvider

from flash_attest.oracle import limits
from flash_attest.properties.cases import drawing
from flash_attest.properties.checks import comparisons
from flash_attest.properties.state.patched import Near, everything, words


def test_what_was_replaced_is_named_and_put_back(monkeypatch):
    functions, check, allowed = everything(), comparisons.check_near, limits.Z_LIMIT
    monkeypatch.setattr(comparisons, "check_near", print)
    monkeypatch.setattr(limits, "Z_LIMIT", 1e9)
    comparisons.len = torch.Tensor.double = print  # names of a builtin, and of an inherited method
    suite = "flash_attest.properties.checks.comparisons"
    assert set(functions.put_back()) == {
        f"{suite}.check_near", f"{suite}.len", "flash_attest.oracle.limits.Z_LIMIT", "torch.Tensor.double",
    }  # fmt: skip
    assert (comparisons.check_near, limits.Z_LIMIT) == (check, allowed) and not hasattr(comparisons, "len")
    assert "double" not in vars(torch.Tensor) and functions.put_back() == []


def test_each_law_compares_what_verdicts_depend_on(monkeypatch):
    functions = everything()
    monkeypatch.setattr(json, "dumps", print)
    monkeypatch.setattr(HypothesisProvider, "draw_integer", print)
    assert functions.put_back(all_places=False) == ["json.dumps"]
    assert functions.put_back() == [f"{HypothesisProvider.__module__}.HypothesisProvider.draw_integer"]


def test_modules_that_are_gone_come_back(monkeypatch):
    functions = everything()
    monkeypatch.delitem(sys.modules, "flash_attest.oracle.limits")
    assert functions.put_back() == ["sys.modules['flash_attest.oracle.limits']"]
    assert sys.modules["flash_attest.oracle.limits"] is limits


def test_modules_that_torch_compile_makes_and_removes_are_not_named(monkeypatch):
    made = "torch._inductor.runtime.compile_tasks.cxnkkmc36vt5"
    monkeypatch.setitem(sys.modules, made, types.ModuleType(made))
    functions = everything()
    del sys.modules[made]
    assert functions.put_back() == []


def test_what_the_suite_and_torch_replace_themselves_is_expected(monkeypatch):
    functions, near, dtype = everything(), Near(), torch.get_default_dtype()
    monkeypatch.setattr(HypothesisProvider, "_maybe_draw_constant", drawing._no_constant)
    wrapper = torch._disable_dynamo(torch.manual_seed)  # as importing torch.compile's modules does
    monkeypatch.setattr(torch, "manual_seed", wrapper)
    torch.set_default_dtype(torch.float64)  # replaces torch.Storage
    torch.set_default_dtype(dtype)
    monkeypatch.setattr(torch, "new_function", print, raising=False)
    assert functions.put_back() == near.put_back() == [] and torch.manual_seed is wrapper


def test_a_wrapper_of_others_is_not_expected(monkeypatch):
    functions = everything()
    monkeypatch.setattr(torch, "manual_seed", functools.wraps(torch.manual_seed)(lambda seed: None))
    assert functions.put_back() == ["torch.manual_seed"]


def test_near_restores_torch_and_the_builtins_first(monkeypatch):
    near, stack = Near(), torch.stack
    with contextlib.suppress(TypeError):
        torch.stack = __builtins__["len"] = __builtins__["vars"] = None
        names = near.put_back()
    assert names == ["builtins.len", "builtins.vars", "torch.stack"] and torch.stack is stack


def test_many_names_are_cut():
    assert words("forward", ["a.b"]) == "forward replaces a.b and does not restore it"
    assert words("forward", ["a", "b", "c", "d"]) == "forward replaces a, b, c and 1 more and does not restore them"
