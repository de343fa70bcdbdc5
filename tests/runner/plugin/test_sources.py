"""The files that the digest of a plug-in covers."""

import sys

from flash_attest.impls.contract.loading import from_file
from flash_attest.runner.plugin import sources

PLUGIN = "import {name}\nfrom flash_attest.impls.torch_math import IMPL\n"


def digests(folder, module, tmp_path, monkeypatch) -> tuple[str, str]:
    """Return a plug-in's digests before and after a change to a module that it imports."""
    folder.mkdir(parents=True)
    (folder / f"{module}.py").write_text("WIDTH = 1\n")
    plugin = tmp_path / f"uses_{module}.py"
    plugin.write_text(PLUGIN.format(name=module))
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    from_file(str(plugin))
    before = sources.of_plugin(str(plugin))
    (folder / f"{module}.py").write_text("WIDTH = 2\n")
    return before, sources.of_plugin(str(plugin))


def test_what_a_plug_in_imports_counts(tmp_path, monkeypatch):
    before, after = digests(tmp_path / "beside", "module_beside", tmp_path, monkeypatch)
    assert before != after


def test_packages_of_another_environment_have_a_version_and_do_not_count(tmp_path, monkeypatch):
    """With venv --system-site-packages, all of torch would be read if they counted."""
    installed = tmp_path / "elsewhere" / "lib" / "site-packages"
    before, after = digests(installed, "module_installed", tmp_path, monkeypatch)
    assert before == after


def test_an_environment_in_the_checkout_is_not_the_suite():
    assert sources.in_checkout(str(sources.ROOT / "oracle" / "masks.py"))
    assert not sources.in_checkout(str(sources.ROOT / ".tox" / "lib" / "python3" / "site-packages" / "torch" / "x.py"))
