"""Implementations that replace functions: torch's, Python's, those of other libraries, the suite's.

A right answer does not help: what they replace is what the suite judges with.
"""

import builtins
import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import threading
import time
import unittest.mock

import hypothesis
import numpy
import torch

from flash_attest import oracle
from flash_attest.oracle import limits
from flash_attest.properties.checks import comparisons
from flash_attest.properties.trial import Trial
from tests.plugins import good
from tests.runner.torture.table import FAIL, PASS, Table

TABLE = Table()
FORWARD = "forward replaces "
A_CALL = "a call replaces "


def agree(*arguments, **options):
    return True


def fail(*arguments, **options):
    raise TypeError("replaced")


def replaces(owner, name, value, words=FORWARD):
    """Add an implementation that replaces owner.name, after it has computed the right answer."""
    full = f"{owner.__name__ if hasattr(owner, '__name__') else owner}.{name}"

    def act(q, k, v):
        out = good.forward(q, k, v)
        setattr(owner, name, value)
        return out

    act.__name__ = f"replaces_{full.replace('.', '_')}_by_{getattr(value, '__name__', 'none').strip('<>')}".lower()
    TABLE.gives(FAIL, words)(act)


replaces(torch, "equal", agree, f"{FORWARD}torch.equal and does not restore it")
replaces(torch, "empty", None, f"{FORWARD}torch.empty")
replaces(torch, "stack", fail, f"{FORWARD}torch.stack")
replaces(torch.Tensor, "__eq__", agree, f"{FORWARD}torch.Tensor.__eq__")
replaces(torch.Tensor, "double", None, f"{FORWARD}torch.Tensor.double")
replaces(torch.Tensor, "clone", fail, f"{FORWARD}torch.Tensor.clone")
replaces(torch.nn.functional, "softmax", fail, f"{FORWARD}torch.nn.functional.softmax")
replaces(builtins, "len", None, f"{FORWARD}builtins.len")
replaces(builtins, "next", fail, f"{FORWARD}builtins.next")
replaces(json, "dumps", fail, f"{A_CALL}json.dumps")
replaces(json.JSONEncoder, "encode", fail, f"{A_CALL}json.encoder.JSONEncoder.encode")
replaces(os, "getcwd", fail, "forward raises TypeError: replaced")  # in what looks at the process after the call
replaces(time, "perf_counter", lambda: 0.0, f"{A_CALL}time.perf_counter")
replaces(contextlib, "suppress", fail, f"{A_CALL}contextlib.suppress")
replaces(dataclasses, "replace", fail, f"{A_CALL}dataclasses.replace")
replaces(pathlib.Path, "read_text", fail, f"{A_CALL}pathlib.Path.read_text")
replaces(numpy, "asarray", fail, f"{A_CALL}numpy.asarray")
replaces(hypothesis, "settings", None, f"{A_CALL}hypothesis.settings")
replaces(oracle, "attention", fail, f"{A_CALL}flash_attest.oracle.attention")
replaces(limits, "Z_LIMIT", 1e9, f"{A_CALL}flash_attest.oracle.limits.Z_LIMIT")
replaces(comparisons, "Z_LIMIT", 1e9, f"{A_CALL}flash_attest.properties.checks.comparisons.Z_LIMIT")
replaces(Trial, "budget", fail, f"{A_CALL}flash_attest.properties.trial.Trial.budget")
replaces(Trial, "want", agree, f"{A_CALL}flash_attest.properties.trial.Trial.want")


@TABLE.gives(FAIL, f"{A_CALL}flash_attest.properties.checks.comparisons.check_budget and does not restore it")
def is_wrong_and_replaces_the_comparison(q, k, v):
    comparisons.check_budget = agree
    return good.forward(q, k, v) + 1


@TABLE.gives(FAIL, f"{FORWARD}builtins.isinstance, builtins.len, builtins.range and ")
def replaces_many(q, k, v):
    out = good.forward(q, k, v)
    torch.empty = torch.zeros = torch.isnan = torch.Tensor.double = None
    builtins.len = builtins.range = builtins.isinstance = None
    return out


@TABLE.gives(FAIL, "forward raises TypeError: 'NoneType' object is not callable")
def replaces_and_raises(q, k, v):
    torch.empty = None
    torch.empty(3)


@TABLE.gives(FAIL, f"{A_CALL}flash_attest.properties.checks.comparisons.len")
def hides_a_builtin_in_a_module(q, k, v):
    comparisons.len = None


@TABLE.gives(FAIL, f"{A_CALL}hypothesis.settings and does not restore it")
def deletes(q, k, v):
    del hypothesis.settings


@TABLE.gives(FAIL, f"{FORWARD}sys.modules['")
def has_no_modules(q, k, v):
    out = good.forward(q, k, v)
    sys.modules.clear()
    return out


@TABLE.gives(FAIL, f"{A_CALL}sys.modules['torch'] and does not restore it")
def has_another_torch(q, k, v):
    out = good.forward(q, k, v)
    sys.modules["torch"] = unittest.mock.Mock()
    return out


@TABLE.gives(f"{FAIL}", "torch.equal")
def replaces_in_a_thread(q, k, v):
    thread = threading.Thread(target=setattr, args=(torch, "equal", agree))
    thread.start()
    thread.join()


@TABLE.gives(PASS)
def replaces_and_restores(q, k, v):
    with unittest.mock.patch.object(torch, "equal", agree), unittest.mock.patch.object(json, "dumps", fail):
        return good.forward(q, k, v)


@TABLE.gives(PASS)
def adds_what_is_new(q, k, v):
    torch.Tensor.my_method = torch.my_function = json.my_function = agree


IMPLS, EVERY = TABLE.implementations(
    "replaces_torch_stack_by_fail",
    "replaces_tensor_clone_by_fail",
    "replaces_builtins_next_by_fail",
    "replaces_json_dumps_by_fail",
    "replaces_contextlib_suppress_by_fail",
    "replaces_path_read_text_by_fail",
    "replaces_numpy_asarray_by_fail",
    "replaces_trial_want_by_agree",
    "has_another_torch",
)
