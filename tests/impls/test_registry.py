"""The registry: which modules a selection imports, plug-ins in files, contracts by device."""

import sys
from dataclasses import replace

import pytest

from flash_attest import ContractError, Implementation, Supports
from flash_attest.impls import torch_math
from flash_attest.impls.contract import loading, registry
from flash_attest.impls.contract.entry import Entry, RegistryError, Unloadable
from flash_attest.impls.contract.loading import from_file
from flash_attest.impls.contract.registry import choose

MINE = [Entry(replace(torch_math.IMPL, name="mine"), "mine.py")]


@pytest.fixture
def imported(monkeypatch):
    """Records which modules are asked for their implementations from here on."""
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


def test_a_name_that_does_not_begin_with_its_module_is_reported(monkeypatch):
    assert not any(isinstance(entry.impl, Unloadable) for entry in registry.ours())
    monkeypatch.setattr(torch_math, "IMPL", replace(torch_math.IMPL, name="attention_of_mine"))
    (entry,) = registry.ours(["torch_math"])
    assert entry.impl.problem.endswith(
        "torch_math.py: the names attention_of_mine should begin with torch_math, by which --impl finds them"
    )


@pytest.mark.parametrize("names", ["torch_mth", "torch_math,mne", ""])
def test_an_unknown_name_lists_all_that_are_known(names):
    with pytest.raises(RegistryError, match=r"; mine.py has mine; ours are cuda_fa1, .*, numba_fa1, .*, triton_fa2"):
        choose(MINE, names, alone=True)


def test_an_unknown_name_beside_a_file_that_cannot_be_loaded_is_told():
    broken = Entry(Unloadable("broken", "broken.py:1: importing it raises ValueError: no"), "broken.py")
    mine, other = sorted(choose([*MINE, broken], "mine,nosuch", alone=True), key=lambda entry: entry.name != "mine")
    assert mine is MINE[0] and other.impl.problem.splitlines() == [
        broken.impl.problem,
        "--impl nosuch: nothing that could be loaded has this name",
    ]
    assert choose([*MINE, broken], "mine,broken", alone=True) == [broken, *MINE]


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(RegistryError, match=r"; did you mean torch_math\?$"):
        choose(MINE, "torch_mth", alone=True)


def test_a_module_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loading.module_of("package.module:IMPL") == ("package.module", "IMPL")
    assert loading.module_of("mine.py:IMPL") is None and loading.module_of("folder/mine.py") is None
    assert loading.can_be_tried("package.module:IMPL") and not loading.can_be_tried("mine.py:IMPL")
    (tmp_path / "no_ending").write_text("")
    assert loading.module_of("no_ending:IMPL") is None


def test_a_module_is_loaded_once_and_an_absent_one_is_named():
    (entry,) = loading.from_file("flash_attest.impls.torch_math:IMPL")
    assert entry.impl is torch_math.IMPL and entry.option == "--impl-from=flash_attest.impls.torch_math:IMPL"
    with pytest.raises(RegistryError, match=r"--impl-from no_such\.module:IMPL: there is no module no_such"):
        loading.from_file("no_such.module:IMPL")


def test_a_list_goes_before_an_implementation_that_a_file_imports(tmp_path):
    """A file may list variants of IMPL, which it imports from another one."""
    lines = (
        "from dataclasses import replace",
        "from flash_attest.impls.torch_math import IMPL",
        'IMPLS = [replace(IMPL, name=name) for name in ("one", "other")]',
    )
    (tmp_path / "variants.py").write_text("\n".join(lines))
    assert [entry.name for entry in loading.from_file(str(tmp_path / "variants.py"))] == ["one", "other"]


def test_a_plugin_with_a_name_of_ours_is_an_error():
    taken = [Entry(torch_math.IMPL, "mine.py")]
    with pytest.raises(RegistryError, match="two implementations are named 'torch_math'"):
        choose(taken, "torch_math", alone=True)


def test_without_names_plugins_are_judged_alone_or_beside_ours():
    assert [entry.name for entry in choose(MINE, None, alone=True)] == ["mine"]
    assert {"mine", "torch_math", "numba_fa1"} <= {entry.name for entry in choose(MINE, None, alone=False)}


def test_what_a_hook_returns_is_a_plug_in_without_an_option():
    """An example is an entry point of an installed package. It is judged in a separate process."""
    mine, declared = MINE[0].impl, loading.from_hook([[replace(torch_math.IMPL, forward=lambda q, k, v: q)]])
    assert Entry(mine, "/site-packages/mine.py").plug_in and Entry(mine, "", "--impl-from=mine.py").plug_in
    assert all(entry.plug_in for entry in declared) and not any(
        entry.plug_in for entry in registry.ours(["torch_math"])
    )


# --- modules beside a plug-in's file --------------------------------------------------------------

IMPORTS = """
import torch
from flash_attest import Implementation
from utils import NAME

def forward(q, k, v):
    return q

IMPL = Implementation(name=NAME, forward=forward)
"""


def test_each_plug_in_finds_the_module_beside_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "utils", raising=False)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.py").write_text(IMPORTS)
        (tmp_path / name / "utils.py").write_text(f"NAME = {name!r}\n")
    names = [from_file(str(tmp_path / name / "kernel.py"))[0].name for name in ("first", "second", "first")]
    assert names == ["first", "second", "first"]
    assert sys.path[0] != str(tmp_path / "first") and str(tmp_path / "first") in sys.path


# --- the contract may differ by device -----------------------------------------------------------


def by_device(**supports):
    return Implementation(name="a", forward=lambda q, k, v: q, supports=supports)


def test_the_contract_may_differ_by_device():
    impl = by_device(cpu=Supports(headdims={16}), cuda=Supports(headdims={64, 128}))
    assert impl.on("cpu").supports.headdim_list == [16] and impl.on("cuda").supports.headdim_list == [64, 128]
    assert impl.on("cpu") is impl.on("cpu") is impl.on("cuda").on("cpu")
    (entry,) = registry.on_device([Entry(impl, "a.py")], "cuda")
    assert entry.impl.supports.headdim_list == [64, 128]
    same = Implementation(name="b", forward=impl.forward)
    assert same.on("cuda") is same


@pytest.mark.parametrize(
    ("supports", "words"),
    [
        ({"cpu": Supports()}, "supports is given for cpu: should be for cpu and cuda, as devices says"),
        ({"cpu": Supports(), "cuda": Supports(headdims=())}, "supports['cuda'].headdims=()"),
        ({"cpu": Supports(), "cuda": None}, "supports['cuda']=None: should be a Supports(...)"),
    ],
)
def test_a_wrong_field_names_its_device(supports, words):
    with pytest.raises(ContractError) as error:
        by_device(**supports)
    assert words in str(error.value)
