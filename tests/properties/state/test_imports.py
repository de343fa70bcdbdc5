"""An import is watched: what it changes is restored and named (properties/state/imports.py)."""

import importlib
import json
import os
import sys
import types

import pytest
import torch

from flash_attest.properties.state import import_things, number_things, patched, process_things, torch_things
from flash_attest.properties.state.imports import ImportWatch
from flash_attest.runner.isolation import importing, still_right
from flash_attest.runner.isolation.parent import answer_of
from tests.places import PLUGINS

GOOD = "from tests.plugins.good import IMPL\n"


def entry_of(folder, source, name="plugin"):
    file = folder / f"{name}.py"
    file.write_text(source + GOOD)
    entries = importing.entries_of(str(file), 60.0)
    return next(entry for entry in entries if entry.name in ("good", name))


def test_an_import_that_changes_nothing_is_not_named():
    with ImportWatch() as watch:
        import tests.plugins.good  # noqa: F401
    assert (watch.broken, watch.remarks, watch.lasting, watch.settings) == ([], [], [], [])


def test_popular_libraries_are_no_findings(tmp_path):
    """They add to the environment, the warnings filters and sys.path; and torch replaces functions
    of its own.
    """
    source = (
        "import triton, numba, numba.cuda, torch._dynamo, torch._inductor.compile_fx, torch.distributed\n"
        "import logging, sys, warnings\n"
        "logging.basicConfig(level=logging.INFO)\nlogging.captureWarnings(True)\nwarnings.simplefilter('ignore')\n"
        "sys.path.insert(0, '/nowhere')\n"
    )
    entry = entry_of(tmp_path, source)
    assert (entry.broken, entry.remarks, entry.threads) == ((), (), ())


def test_what_a_file_adds_to_the_path_comes_last(tmp_path):
    entry_of(tmp_path, "import sys\nsys.path.insert(0, '/nowhere')\n")
    assert "/nowhere" in sys.path[-3:]
    sys.path.remove("/nowhere")


def test_finders_of_libraries_stay(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    mine = type("Finder", (), {"find_spec": lambda *_: None, "__module__": "attest_plugin_mine_0"})()
    library = type("Finder", (), {"find_spec": lambda *_: None, "__module__": "library"})()
    with ImportWatch() as watch:
        sys.meta_path[:0] = [library, mine]
    assert watch.broken == ["importing it adds to sys.meta_path and does not restore it"]
    assert sys.meta_path[-1] is library and mine not in sys.meta_path


def test_settings_hold_for_the_implementations_of_the_file_alone(tmp_path):
    source = (
        "import os, torch\nos.environ.update(OF_THE_FILE='1', CUDA_VISIBLE_DEVICES='7')\n"
        "torch.backends.cuda.enable_flash_sdp(False)\n"
    )
    entry, gpus = entry_of(tmp_path, source), os.environ.get("CUDA_VISIBLE_DEVICES")
    assert "OF_THE_FILE" not in os.environ and torch.backends.cuda.flash_sdp_enabled()
    assert len(entry.settings) == 2 and "flash SDPA switch to False" in entry.remarks[0]
    with entry.settings[0](), entry.settings[1]():
        assert os.environ["OF_THE_FILE"] == "1" and not torch.backends.cuda.flash_sdp_enabled()
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == gpus, "the run chooses the GPU"
    assert "OF_THE_FILE" not in os.environ and torch.backends.cuda.flash_sdp_enabled()


def test_what_cannot_be_restored_keeps_the_file_out(tmp_path):
    entry = entry_of(tmp_path, "import sys\nsys.addaudithook(lambda *_: None)\n")
    words = "importing it adds an audit hook (sys.addaudithook), and that cannot be undone here"
    assert entry.impl.problem == f"{tmp_path / 'plugin.py'}: {words}"


@pytest.mark.parametrize("replace", [True, False])
def test_a_right_implementation_is_judged_after_an_import(replace):
    def answer():
        if replace:
            library = torch.library.Library("aten", "IMPL")
            library.impl("bmm", lambda a, b: a.new_zeros(a.shape[0], a.shape[1], b.shape[2]), "CPU")
        return {"problem": still_right.problem()}

    said = answer_of(answer, 60.0)["problem"]
    assert said.startswith("importing it makes a right implementation fail: out[") if replace else not said


def test_a_replaced_function_is_found_in_any_module_of_a_run():
    functions, before = patched.loaded(), json.encoder.JSONEncoder.encode
    json.encoder.JSONEncoder.encode = lambda *_: "rubbish"
    assert functions.put_back() == ["json.encoder.JSONEncoder.encode"]
    assert json.encoder.JSONEncoder.encode is before and functions.put_back() == []


def test_a_library_may_replace_its_own(monkeypatch):
    def wrapped():
        """Stand for a function that torch._dynamo writes."""

    library = types.FunctionType(wrapped.__code__, {"__name__": "torch._dynamo.some"}, "manual_seed")
    functions = patched.loaded()
    monkeypatch.setattr(torch, "manual_seed", library)
    assert functions.put_back() == [] and torch.manual_seed is library
    monkeypatch.setattr(torch, "manual_seed", wrapped)
    assert functions.put_back() == ["torch.manual_seed"]


@pytest.mark.parametrize(
    ("written_in", "name", "verdict"),
    [
        ("a library", "typing._type_repr", "remark"),
        ("a library", "typing.get_type_hints", "broken"),
        ("a library", "torch._dynamo.disable", "broken"),
        ("the file", "typing._type_repr", "broken"),
        ("a helper", "typing._type_repr", "broken"),
    ],
)
def test_a_library_may_hook_into_private_functions_of_python(tmp_path, monkeypatch, written_in, name, verdict):
    """beartype does so in typing, and a plug-in that imports it can do nothing about it."""
    module, _, function = name.rpartition(".")
    source = f"import {module} as it\nformer = it.{function}\nit.{function} = lambda *given: former(*given)\n"
    before = getattr(importlib.import_module(module), function)
    if written_in == "a library":
        (tmp_path / "hooking-1.0.dist-info").mkdir()
        (tmp_path / "hooking-1.0.dist-info" / "top_level.txt").write_text("hooking\n")
    if written_in != "the file":
        (tmp_path / "hooking.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        source = "import hooking\n"
    entry = entry_of(tmp_path, source)
    text = f"importing it replaces {name} and does not restore it"
    found = {"broken": entry.broken, "remark": entry.remarks}
    assert found == {"broken": (), "remark": ()} | {
        verdict: (f"{text} (hooking does)" if verdict == "remark" else text,)
    }
    assert getattr(sys.modules[module], function) is before


def test_every_thing_can_be_read_and_restored():
    things = (*import_things.FIRST, *import_things.OTHERS, *torch_things.THINGS, *number_things.THINGS)
    for thing in (*things, *process_things.THINGS):
        before = thing.read()
        if not (thing.optional and before is None):
            thing.put_back(before)
        assert thing.read() == before, thing.name


def test_the_good_plugin_is_as_it_was():
    entry = importing.imported(str(PLUGINS / "good.py"))[0]
    assert (entry.broken, entry.remarks, entry.settings, entry.threads) == ((), (), (), ())
