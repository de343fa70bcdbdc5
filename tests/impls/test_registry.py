"""Which modules of impls/ a selection imports."""

from dataclasses import replace
from pathlib import Path

import pytest

from impls import registry, torch_math
from impls.registry import Entry, RegistryError, choose

MINE = [Entry(replace(torch_math.IMPL, name="mine"), "mine.py")]


@pytest.fixture
def imported(monkeypatch):
    """The modules that are asked for their implementations from here on."""
    seen, of_module = [], registry._of_module
    monkeypatch.setattr(registry, "_of_module", lambda path: seen.append(path.stem) or of_module(path))
    return seen


@pytest.mark.parametrize(
    ("names", "modules"),
    [
        ("torch_math", ["torch_math"]), (" torch_math, torch_sdpa_math", ["torch_math", "torch_sdpa"]), ("mine", []),
        ("cuda_fa1,mine", ["cuda"]),
    ],
)  # fmt: skip
def test_what_is_not_chosen_is_not_imported(names, modules, imported):
    assert [entry.name for entry in choose(MINE, names, alone=True)] == sorted(registry.named(names))
    assert imported == modules


def test_every_module_begins_as_the_names_in_it():
    assert all(entry.name.startswith(Path(entry.file).stem) for entry in registry.ours())


def test_a_name_may_begin_otherwise_than_its_module(monkeypatch):
    mine = replace(torch_math.IMPL, name="attention_of_mine")
    monkeypatch.setattr(torch_math, "IMPL", mine)
    assert [entry.impl for entry in choose([], "attention_of_mine", alone=False)] == [mine]


@pytest.mark.parametrize("names", ["torch_mth", "torch_math,mne", ""])
def test_an_unknown_name_lists_all_that_are_known(names):
    with pytest.raises(RegistryError, match=r"known are cuda_fa1, .*, mine, numba_fa1, .*, triton_fa2"):
        choose(MINE, names, alone=True)


def test_a_plugin_with_a_name_of_ours_is_an_error():
    taken = [Entry(torch_math.IMPL, "mine.py")]
    with pytest.raises(RegistryError, match="two implementations are named 'torch_math'"):
        choose(taken, "torch_math", alone=True)


def test_without_names_plugins_are_judged_alone_or_beside_ours():
    assert [entry.name for entry in choose(MINE, None, alone=True)] == ["mine"]
    assert {"mine", "torch_math", "numba_fa1"} <= {entry.name for entry in choose(MINE, None, alone=False)}
