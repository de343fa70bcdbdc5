"""An adapter asks for its package by name and version, or for a folder of a public repository."""

import pytest

from flash_attest import NotInstalled, wild
from flash_attest.command.targets import resolved
from flash_attest.impls import Absent
from flash_attest.impls.contract.loading import from_file
from flash_attest.wild import PACKAGES, SOURCES, file_of, module_of


def test_every_adapter_is_absent_without_its_package():
    for key, package in (PACKAGES | SOURCES).items():
        (place,) = resolved([package.name]).imported
        entries = from_file(place)
        assert entries and all(isinstance(entry.impl, Absent) for entry in entries), key
        assert (package.pip_line if key in PACKAGES else f"set {package.variable} to ") in entries[0].impl.reason


@pytest.mark.parametrize("installed", ["1.0.5", "2.0.1"])
def test_a_version_that_the_adapter_does_not_fit_is_named(installed, monkeypatch):
    monkeypatch.setattr(wild, "version_of", lambda package: installed)
    words = (
        f"sageattention {installed} is installed, the adapter is for >=1.0.6,<2: pip install 'sageattention>=1.0.6,<2'"
    )
    with pytest.raises(NotInstalled, match=f"^{words}$"):
        module_of("sageattention", "sageattention.core")


def installed_in(folder, monkeypatch):
    """Make sageattention a package that is installed in a folder."""
    monkeypatch.setattr(wild, "version_of", lambda package: "1.0.6")
    monkeypatch.setattr(wild, "folder_of", lambda package: str(folder))
    monkeypatch.syspath_prepend(folder)


def test_a_module_is_imported_as_if_there_were_a_gpu(monkeypatch, tmp_path):
    (tmp_path / "wants_a_gpu.py").write_text("import torch\nthere = torch.cuda.is_available()\nassert there\n")
    installed_in(tmp_path, monkeypatch)
    assert module_of("sageattention", "wants_a_gpu").there


def test_path_files_beside_a_package_are_read(monkeypatch, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "below_it.py").write_text("answer = 42\n")
    (tmp_path / "beside.pth").write_text(f"{tmp_path / 'below'}\n")
    installed_in(tmp_path, monkeypatch)
    assert module_of("sageattention", "below_it").answer == 42


def test_a_file_is_imported_from_the_folder_of_its_variable(monkeypatch, tmp_path):
    source = SOURCES["executorch"]
    (tmp_path / f"{source.module}.py").write_text("answer = 42\n")
    monkeypatch.setenv(source.variable, str(tmp_path))
    assert file_of("executorch").answer == 42


def test_a_folder_without_the_file_is_named_with_its_variable(monkeypatch, tmp_path):
    source = SOURCES["native_sparse_attention_triton"]
    monkeypatch.setenv(source.variable, str(tmp_path))
    words = f"{source.variable} is {tmp_path}, should be {source.place}: has no native_sparse_attention"
    with pytest.raises(ImportError, match=f"^{words}$"):
        file_of("native_sparse_attention_triton")
