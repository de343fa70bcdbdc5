"""Converts declarations and cases to JSON and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import torch

from flash_attest.impls.contract.entry import Unloadable
from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import Absent, ContractError, Implementation
from flash_attest.impls.contract.supports import Supports

BACKWARDS = ("none", "autograd", "function")


def record_of(impl: Implementation | Absent | Unloadable) -> dict:
    """Return the declarations of an entry, without its functions."""
    if isinstance(impl, Absent):
        return {"kind": "absent", "name": impl.name, "reason": impl.reason}
    if isinstance(impl, Unloadable):
        return {"kind": "unloadable", "name": impl.name, "problem": impl.problem}
    supports = {f.name: getattr(impl.supports, f.name) for f in fields(Supports)}
    supports |= {"headdims": impl.supports.headdim_list, "accepts": impl.supports.accepts is not None}
    record = {f.name: getattr(impl, f.name) for f in fields(Implementation) if f.init and f.name != "forward"}
    record |= {
        "backward": impl.backward if impl.backward == "autograd" else "function" if impl.backward else "none",
        "supports": supports,
        "precision": {f.name: getattr(impl.precision, f.name) for f in fields(Precision)},
    }
    return {"kind": "implementation", **_plain(record)}


def declared(
    record: dict, forward: Callable, backward: Callable, accepts: Callable
) -> Implementation | Absent | Unloadable:
    """Return the entry for a record, with these functions.

    It is not traced, because it runs in another process. Raises ContractError, KeyError or
    TypeError for a wrong record, and for known_failures, which would turn failures green.
    """
    kind, values = record["kind"], {key: value for key, value in record.items() if key != "kind"}
    if kind == "absent":
        return Absent(str(values["name"]), str(values["reason"]))
    if kind == "unloadable":
        return Unloadable(str(values["name"]), str(values["problem"]))
    if values["known_failures"]:
        raise ContractError("known_failures should be empty with --untrusted: failures that it lists count as green")
    if values["backward"] not in BACKWARDS:
        raise TypeError(f"backward={values['backward']!r}")
    supports = Supports(**values["supports"])
    supports = replace(
        supports,
        dtypes=frozenset(getattr(torch, str(name), name) for name in supports.dtypes),
        headdims_v=frozenset(map(tuple, supports.headdims_v)),
        accepts=accepts if supports.accepts else None,
    )
    values |= {
        "forward": forward,
        "backward": {"none": None, "autograd": "autograd", "function": backward}[values["backward"]],
        "supports": supports,
        "precision": Precision(**values["precision"]),
        "tile": tuple(values["tile"]) if isinstance(values["tile"], list) else values["tile"],
        "traced": False,
    }
    return Implementation(**values)


def case_record(case: Any) -> dict:
    """Return the fields of a case."""
    return {f.name: _plain(getattr(case, f.name)) for f in fields(case)}


def case_of(record: dict) -> SimpleNamespace:
    """Return a case as `accepts` sees it in the kernel process."""
    dtypes = {name: getattr(torch, record[name]) for name in ("dtype", "bias_dtype")}
    return SimpleNamespace(**record | dtypes | {"window": record["window"] and tuple(record["window"])})


def _plain(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Collection) and not isinstance(value, str):
        each = [_plain(item) for item in value]
        return each if isinstance(value, (list, tuple)) else sorted(each, key=str)
    return value
