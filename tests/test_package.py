"""The package: the contents of its archives, what installing the checkout adds, what the package
needs.
"""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from flash_attest import __version__, documents, packages
from tests.places import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROOMS = ("oracle", "impls", "properties", "runner", "races", "emulator", "mutants", "sweep", "bench")
# There is a file of each kind, because a build may leave out file types that it does not know.
KINDS = (
    "py.typed", "command/check.ini", "runner/page/run.html.j2", "runner/page/style.css", "runner/page/laws.js",
    "sweep/schema.sql", "impls/cuda/fa2.cu",
    "impls/cuda/tiles.cuh", "impls/cuda/fa2_binding.cpp", "emulator/cuda/include/cuda/atomic",
    "emulator/cuda/include/cuda/std/atomic", "emulator/cuda/include/cute/tensor.hpp", "emulator/runtime/runtime.h",
    "emulator/runtime/shadow.cpp", "examples/flash_forward.cu",
)  # fmt: skip


def built(builder: type, folder: Path, root: Path = ROOT) -> Path:
    """Return the archive that a builder makes from a folder."""
    (file,) = builder(str(root)).build(directory=str(folder), versions=["standard"])
    return Path(file)


def in_wheel(file: Path) -> dict[str, bytes]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(file) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel of the checkout."""
    return built(WheelBuilder, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """Build the sdist of the checkout."""
    return built(SdistBuilder, tmp_path_factory.mktemp("sdist"))


def of_rooms() -> set[str]:
    """Return the files of the rooms, with the names that they should have in the wheel."""
    return {
        f"flash_attest/{path.relative_to(ROOT)}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_the_wheel_holds_every_file_of_the_rooms_as_a_file(wheel):
    files = {name for name in in_wheel(wheel) if ".dist-info/" not in name}
    assert {name for name in files if name.split("/")[1] in ROOMS} == of_rooms()
    assert {f"flash_attest/{name}" for name in KINDS} <= files
    assert not [name for name in files if not name.startswith("flash_attest/") or "__pycache__" in name]
    with zipfile.ZipFile(wheel) as archive:
        assert not [info.filename for info in archive.infolist() if (info.external_attr >> 28) == 0xA]  # a link


def test_the_wheel_holds_the_documents_that_the_command_shows(wheel):
    files = {
        name.removeprefix("flash_attest/docs/") for name in in_wheel(wheel) if name.startswith("flash_attest/docs/")
    }
    shown = {str(path.relative_to(documents.FOLDER)) for path in documents.documents().values()}
    assert files == shown | {"index.md"} and "why/bugs.md" in files


def test_the_sdist_holds_the_same_files_and_builds_the_same_wheel(wheel, sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        assert all(member.isfile() for member in archive.getmembers())
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= {path.name for path in folder.iterdir()}
    assert in_wheel(built(WheelBuilder, tmp_path / "again", folder)) == in_wheel(wheel)


def test_an_installation_of_the_checkout_maps_one_name(tmp_path):
    (file,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"])
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path / "site")
    finds = """
import importlib.util, site, sys
site.addsitedir(sys.argv[1])
for name in sys.argv[2:]:
    spec = importlib.util.find_spec(name)
    print(name, spec and spec.origin)
"""
    names = ["flash_attest", "flash_attest.oracle", "tests", *ROOMS]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, "-c", finds, tmp_path / "site", *names],
        cwd=tmp_path, env=variables, capture_output=True, text=True, check=True,
    )  # fmt: skip
    origins = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    assert origins.pop("flash_attest") == str(ROOT / "flash_attest" / "__init__.py")
    assert origins.pop("flash_attest.oracle") == str(ROOT / "flash_attest" / "oracle" / "__init__.py")
    assert set(origins.values()) == {"None"}


def names_of(requirements: list[str]) -> set[str]:
    """Return the names of distributions."""
    return {re.match(r"[\w-]+", line)[0] for line in requirements}


def test_what_is_needed_is_what_is_looked_for():
    assert names_of(PROJECT["dependencies"]) == {*packages.NEEDED.values()}
    extras = {name: names_of(lines) for name, lines in PROJECT["optional-dependencies"].items()}
    assert extras.pop("all") == {"flash-attest"}
    assert {*extras} == {*packages.EXTRAS.values()}
    for module, extra in packages.EXTRAS.items():
        assert module.replace(".", "-").replace("_", "-") in extras[extra]


def test_ranges_are_not_pins():
    every = [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]
    pinned = [line for line in every if "==" in line.split(";")[0]]
    assert [line for line in pinned if not line.startswith("numba-cuda")] == []  # its private names are replaced


def test_what_is_missing_says_what_to_do(monkeypatch):
    monkeypatch.setattr(packages, "is_there", lambda module: False)
    assert packages.lacking("matplotlib") == "matplotlib is not installed: pip install 'flash-attest[bench]'"


def test_the_citation_names_the_version():
    (version,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), flags=re.M)
    assert version == __version__
