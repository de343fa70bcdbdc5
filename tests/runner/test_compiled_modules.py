"""Compiled modules go to our cache if Python may not write them beside the sources."""

import subprocess
import sys
from importlib.util import cache_from_source, spec_from_file_location
from pathlib import Path

import pytest
import torch

from flash_attest.runner.compiled_modules import keep_modules_compiled


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """A function that imports a module in a new process, and returns the compiled files."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "module.py").write_text("")
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")  # so that monkeypatch restores it
    monkeypatch.delenv("PYTHONPYCACHEPREFIX")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(torch, "__spec__", spec_from_file_location("torch", sources / "torch.py"))

    def by_a_process() -> list[str]:
        subprocess.run([sys.executable, "-S", "-c", "import module"], cwd=sources, check=True)
        return [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("module.*.pyc")]

    return by_a_process


def test_processes_find_modules_compiled_that_may_not_be_kept_beside_their_sources(compiled):
    assert compiled() == []
    keep_modules_compiled()
    (file,) = compiled()
    assert file.startswith("cache/modules/")


def test_this_process_finds_them_too(compiled, monkeypatch, tmp_path):
    keep_modules_compiled()
    monkeypatch.syspath_prepend(tmp_path / "sources")
    __import__("module")
    monkeypatch.delitem(sys.modules, "module")
    assert [file.name.partition(".")[0] for file in (tmp_path / "cache" / "modules").rglob("*.pyc")] == ["module"]


def test_where_torch_is_installed_compiled_nothing_is_compiled_again(compiled):
    file = Path(cache_from_source(torch.__spec__.origin))
    file.parent.mkdir()
    file.touch()
    keep_modules_compiled()
    assert compiled() == []


def test_a_folder_that_the_user_named_stays(compiled, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "theirs"))
    keep_modules_compiled()
    assert compiled() == []


def test_what_python_does_by_itself_stays(compiled, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    keep_modules_compiled()
    assert compiled() == []
