"""The contents of the archives, and what an installation adds to an environment."""

import json
import tarfile
import zipfile

from tests.places import ROOT

IMPORTED = """
import json, pkgutil, sys
import flash_attest

names = {name: getattr(flash_attest, name).__module__ for name in flash_attest.__all__}
print(json.dumps({"file": flash_attest.__file__, "names": names, "path": sys.path}))
"""


def test_no_archive_holds_a_link(installed):
    with zipfile.ZipFile(installed.wheel) as archive:
        modes = {info.filename: info.external_attr >> 28 for info in archive.infolist()}
    assert "flash_attest/py.typed" in modes and "flash_attest/oracle/masks.py" in modes
    assert [name for name, mode in modes.items() if mode == 0xA] == []
    with tarfile.open(installed.sdist) as archive:
        assert all(member.isfile() for member in archive.getmembers())


def test_pip_finds_nothing_broken(installed):
    assert "No broken requirements found." in installed.pip("check")


def test_the_environment_knows_nothing_of_the_checkout(installed, folder):
    run = installed.run("python", "-c", IMPORTED, folder=folder)
    assert run.returncode == 0, run.stdout
    facts = json.loads(run.stdout)
    assert facts["file"].startswith(str(installed.root)) and len(facts["names"]) > 8
    assert not [name for name in facts["path"] if name.startswith(str(ROOT))]
    site = next(installed.root.glob("lib/python*/site-packages"))
    assert not {"oracle", "impls", "runner", "tests", "conftest.py"} & {path.name for path in site.iterdir()}
    assert not [path for path in (site / "flash_attest").rglob("*") if path.is_symlink()]


def test_no_extra_is_installed(installed):
    names = {line.partition("==")[0].lower() for line in installed.pip("freeze").splitlines()}
    assert {"torch", "pytest-xdist", "hypothesis"} <= names
    assert not {"triton", "numba", "numba-cuda", "matplotlib", "ray"} & names
