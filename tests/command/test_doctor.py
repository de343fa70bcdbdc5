"""flash-attest doctor."""

import json
import os
from contextlib import contextmanager, suppress

import pytest

from flash_attest import packages
from flash_attest.command import doctor
from flash_attest.emulator import compiler


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path_factory):
    """Gives doctor a small cache: a user may have one of 100,000 files, which it counts."""
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path_factory.getbasetemp() / "a cache of doctor"))


def states(capsys, *arguments) -> tuple[int, dict]:
    """Return the exit status, and the state of each part by its name."""
    status = doctor.run([*arguments, "--json"])
    return status, {line["name"]: line for line in json.loads(capsys.readouterr().out)}


def test_here_implementations_can_be_judged(capsys):
    status, parts = states(capsys)
    assert status == 0
    assert {parts[name]["state"] for name in ("Python", "packages", "PyTorch", "cache")} == {"ok"}
    assert {"GPU", "g++", "nvcc", "ninja", "Triton", "Numba", "sandbox", "isolation", "address space"} <= {*parts}
    assert all(line["lost"] for line in parts.values() if line["state"] != "ok")


def test_a_line_says_what_is_lost_and_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "/no/g++")
    compiler.compiler.cache_clear()
    try:
        assert doctor.run([]) == 0
    finally:
        compiler.compiler.cache_clear()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("missing  g++")]
    assert "without it no GPU kernel runs on the CPU" in line
    assert "apt install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora, RHEL)" in line


@pytest.mark.parametrize(
    "module", ["triton", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("matplotlib", "cuda.bindings"))]
)
def test_an_extra_that_is_missing_breaks_nothing(module, monkeypatch, capsys):
    is_there = packages.is_there
    monkeypatch.setattr(packages, "is_there", lambda name: name != module and is_there(name))
    assert doctor.run([]) == 0
    assert packages.install(packages.EXTRAS[module]) in capsys.readouterr().out


def test_a_package_that_is_missing_is_broken(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "is_there", lambda module: module != "xdist")
    status, parts = states(capsys)
    assert status == 1 and parts["packages"]["state"] == "broken"
    assert parts["packages"]["get"] == "pip install pytest-xdist"


def test_a_cache_that_cannot_be_written_costs_the_kernels_only(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "file"))
    status, parts = states(capsys)
    assert status == 0 and parts["cache"]["state"] == "missing"
    assert parts["cache"]["get"] == "name a folder in FLASH_ATTEST_CACHE"


def test_the_size_of_the_cache_is_that_of_all_files_in_it(monkeypatch, tmp_path):
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path))
    (tmp_path / "a" / "b").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        (folder / "kernel.so").write_bytes(bytes(1 << 20))
    (tmp_path / "a" / "to itself").symlink_to(tmp_path)
    assert doctor.cache().found == f"{tmp_path}, 3 MiB"


def test_a_file_of_the_cache_may_vanish_meanwhile(monkeypatch, tmp_path):
    """Another process moves a finished kernel to its place, or removes an old one."""
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path))
    (tmp_path / "kernel.part").write_text("")
    (tmp_path / "a folder").mkdir()
    scandir = os.scandir

    @contextmanager
    def and_vanishes(folder):
        with scandir(folder) as found:
            entries = [*found]
        for name, remove in (("kernel.part", os.unlink), ("a folder", os.rmdir)):
            with suppress(FileNotFoundError):
                remove(tmp_path / name)
        yield entries

    monkeypatch.setattr(os, "scandir", and_vanishes)
    assert doctor.cache().found == f"{tmp_path}, 0 MiB"


def test_a_look_that_fails_is_a_line(monkeypatch, capsys):
    def fails():
        raise OSError("libnothing.so: cannot be loaded")

    monkeypatch.setattr(doctor, "sandbox", fails)
    status, parts = states(capsys)
    assert status == 0 and parts["fails"]["found"] == "OSError: libnothing.so: cannot be loaded"
