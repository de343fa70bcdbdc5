"""Tests what is recorded of a plug-in: files below its folder, modules, environment variables."""

from __future__ import annotations

import os
import sys

import pytest

from flash_attest.runner.plugin import inputs, sources


@pytest.fixture
def hers(tmp_path, monkeypatch):
    """Make a folder with a plug-in, and return a function that says what has changed since."""
    folder = tmp_path / "hers"
    folder.mkdir()
    (folder / "plugin.py").write_text('import os\nMODE = os.environ.get("HER_MODE")\n')
    (folder / "weights.bin").write_bytes(b"1" * 100)
    (folder / "large.bin").write_bytes(b"1" * (inputs.LARGE + 1))
    (folder / "by_name.py").write_text("BLOCK = 64\n")
    monkeypatch.setenv("HER_MODE", "fast")
    before: list[dict] = []

    def changed(*without) -> str:
        files = {str(folder / "plugin.py"): sources.files_of_plugin(str(folder / "plugin.py"))}
        before.append(inputs.by_folder(files, os.environ, without)[str(folder)])
        return inputs.difference(before[-2] if len(before) > 1 else before[-1], before[-1])

    changed.folder = folder
    changed()
    return changed


def edit(name: str):
    return lambda folder, monkeypatch: (folder / name).write_text("changed")


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda folder, patch: None, ""),
        (edit("plugin.py"), "plugin.py has changed"),
        (edit("weights.bin"), "weights.bin has changed"),
        (edit("by_name.py"), "by_name.py has changed"),
        (edit("new.json"), "new.json is new"),
        (lambda folder, patch: (folder / "weights.bin").unlink(), "weights.bin is gone"),
        (lambda folder, patch: os.utime(folder / "large.bin", (1, 1)), "large.bin has changed"),
        (lambda folder, patch: patch.setenv("HER_MODE", "slow"), "the environment variable HER_MODE has changed"),
        (lambda folder, patch: patch.delenv("HER_MODE"), "the environment variable HER_MODE is gone"),
        (lambda folder, patch: patch.setenv("HER_OTHER", "1"), ""),
        (lambda folder, patch: (folder / ".git").mkdir() or edit(".git/index")(folder, patch), ""),
        (lambda folder, patch: (folder / "__pycache__").mkdir() or edit("__pycache__/a.pyc")(folder, patch), ""),
        (lambda folder, patch: (folder / "log.txt").write_text("flash-attest: judges on cpu, profile quick\n"), ""),
        (lambda folder, patch: (folder / "gone").symlink_to("nowhere"), ""),
        (lambda folder, patch: os.mkfifo(folder / "pipe"), ""),
    ],
)  # fmt: skip
def test_what_changed_is_named(hers, monkeypatch, act, words):
    act(hers.folder, monkeypatch)
    assert hers() == words


def test_what_a_run_writes_is_left_out(hers):
    """The report, files that the command names, and files that are open for writing."""
    report = hers.folder / "attest-report"
    report.mkdir()
    (report / "results.json").write_text("{}")
    (hers.folder / "junit.xml").write_text("<testsuites/>")
    with open(hers.folder / "printed.txt", "w") as printed:
        printed.write("anything")
        printed.flush()
        assert hers(report, hers.folder / "junit.xml") == ""
    other = hers.folder / "part-1"
    other.mkdir()
    for name in ("results.json", "index.html", "report.md"):
        (other / name).write_text("another report")
    (hers.folder / "printed.txt").unlink()
    assert hers(report, hers.folder / "junit.xml") == ""


def test_a_module_from_elsewhere_counts_however_it_is_imported(hers, tmp_path, monkeypatch):
    module = tmp_path / "elsewhere" / "attest_by_computed_name.py"
    module.parent.mkdir()
    module.write_text("BLOCK = 64\n")
    monkeypatch.syspath_prepend(module.parent)
    __import__("attest_by" + "_computed_name")
    monkeypatch.setitem(sys.modules, "attest_by_computed_name", sys.modules["attest_by_computed_name"])
    hers()
    module.write_text("BLOCK = 128\n")
    assert hers() == f"{module} has changed"


def test_a_huge_folder_is_compared_up_to_a_limit_the_nearest_first(hers, monkeypatch):
    monkeypatch.setattr(inputs, "MOST_FILES", 10)
    deep = hers.folder / "a" / "b"
    deep.mkdir(parents=True)
    for n in range(20):
        (deep / f"{n}.txt").write_text("1")
    hers()
    (deep / "19.txt").write_text("2")
    assert hers() == ""
    (hers.folder / "weights.bin").write_text("2")
    assert hers() == "weights.bin has changed"


def test_variables_of_libraries_count_and_their_values_are_not_kept():
    found = inputs.variables({"OMP_NUM_THREADS": "secret", "TRITON_INTERPRET": "1", "HOME": "/", "FLASH_ATTEST_COMMAND": "x",
                              "TRITON_CACHE_DIR": "/", "CC": "gcc", "FLASH_ATTENTION_TRITON_AMD_ENABLE": "1"})  # fmt: skip
    assert [*found] == ["CC", "FLASH_ATTENTION_TRITON_AMD_ENABLE", "OMP_NUM_THREADS", "TRITON_INTERPRET"]
    assert "secret" not in str(found)
