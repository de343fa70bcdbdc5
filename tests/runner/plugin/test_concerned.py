"""Tests which files of a plug-in's folder, and which variables, --resume compares for it."""

from __future__ import annotations

import sys
from functools import partial

import pytest

from flash_attest.runner.plugin import inputs, sources
from flash_attest.runner.plugin.concerned import concerned

PURE = "import torch\nfrom sizes import BLOCK\nforward = torch.einsum\n"
# name of a file that is new -> whether it concerns a plug-in with this text
NEW = {
    "a module that nobody names": (PURE, "other.py", False),
    "a log": (PURE, "run.log", False),
    "a module that a module names": (PURE, "deeper.py", True),
    "a package that a module names": (PURE, "deeper/__init__.py", True),
    "a file beside one that reads files": (f"{PURE}text = open(NAME).read()\n", "weights.bin", True),
    "a module beside one that reads files": (f"{PURE}text = open(NAME).read()\n", "other.py", False),
    "a module beside one that imports by name": (f"{PURE}import importlib\n", "other.py", True),
    "a file that is named": (f"{PURE}W = 'my-weights.bin'\n", "my-weights.bin", True),
    "what tl.load does not read": (f"{PURE}x = tl.load(p)\n", "weights.bin", False),
    "what torch.load may read": (f"{PURE}x = torch.load(p)\n", "weights.bin", True),
    "a package in place of the folder": (PURE, "__init__.py", True),
    "a module that Python looks for": (PURE, "sitecustomize.py", True),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of plug-ins. Modules that other tests have loaded do not count."""
    monkeypatch.setattr(sources, "in_checkout", lambda file: not file.startswith(str(tmp_path)))
    monkeypatch.setenv("HER_MODE", "fast")
    (tmp_path / "sizes.py").write_text("from deeper import BLOCK\n")
    (tmp_path / "neighbour.py").write_text("import os\nMODE = os.environ['HER_MODE']\n")
    return tmp_path


def changed(folder, act, environ, targets=("plugin.py",)):
    """Return what has changed for plugin.py after act(), in words. targets: what the run judges."""

    def record():
        files = {str(folder / name): sources.files_of_plugin(str(folder / name)) for name in targets}
        return files, inputs.by_folder(files, environ(), ())[str(folder)]

    _, before = record()
    act()
    files, after = record()
    return inputs.difference(before, after, partial(concerned, plug_in=str(folder / "plugin.py"), files=files))


@pytest.fixture
def loaded(monkeypatch):
    """Stands in for modules that are loaded: plug-ins have their own names."""

    def load(path, name):
        monkeypatch.setitem(sys.modules, name, module := type(sys)(name))
        module.__file__ = str(path)

    return load


@pytest.mark.parametrize("name", NEW)
def test_a_new_file_counts_if_the_plug_in_may_look_for_it(folder, loaded, name):
    text, new, counts = NEW[name]
    (folder / "plugin.py").write_text(text)
    loaded(folder / "plugin.py", "attest_plugin_of_this_test")
    (folder / new).parent.mkdir(exist_ok=True)
    words = changed(folder, lambda: (folder / new).write_text("BLOCK = 64\n"), dict)
    assert words == (f"{new} is new" if counts else "")


def test_another_plug_in_that_is_judged_too_does_not_count(folder, loaded):
    """Nor does a variable that only this one reads. A module that both load does."""
    (folder / "plugin.py").write_text(PURE)
    for name in ("plugin", "neighbour"):
        loaded(folder / f"{name}.py", f"attest_plugin_{name}_of_this_test")
    targets = ("plugin.py", "neighbour.py")
    environ = iter([{"HER_MODE": "fast"}, {"HER_MODE": "slow"}])

    def act():
        (folder / "neighbour.py").write_text("import os\nMODE = os.environ['HER_MODE']  # mended\n")

    assert changed(folder, act, lambda: next(environ), targets) == ""
    loaded(folder / "late.py", "late_module_of_this_test")
    (folder / "late.py").write_text("1")
    assert changed(folder, lambda: (folder / "late.py").write_text("2"), dict, targets) == "late.py has changed"


def test_a_variable_counts_that_its_own_sources_quote(folder, loaded):
    (folder / "plugin.py").write_text(f"{PURE}import os\nMODE = os.environ.get('HER_MODE')\n")
    loaded(folder / "plugin.py", "attest_plugin_of_this_test")
    environ = iter([{"HER_MODE": "fast"}, {"HER_MODE": "slow"}])
    words = changed(folder, lambda: None, lambda: next(environ))
    assert words == "the environment variable HER_MODE has changed"
