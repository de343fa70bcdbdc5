"""flash-attest doctor."""

import json

import pytest

from flash_attest import packages
from flash_attest.command import doctor
from flash_attest.emulator import compiler


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


def test_a_file_of_the_cache_may_vanish_meanwhile(monkeypatch, tmp_path):
    """Another process moves a finished kernel to its place."""
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path))
    vanished = tmp_path / "kernel.part"
    monkeypatch.setattr(type(tmp_path), "rglob", lambda folder, pattern: [vanished])
    monkeypatch.setattr(type(tmp_path), "is_file", lambda path: True)
    assert doctor.cache().state == doctor.OK


def test_a_look_that_fails_is_a_line(monkeypatch, capsys):
    def fails():
        raise OSError("libnothing.so: cannot be loaded")

    monkeypatch.setattr(doctor, "sandbox", fails)
    status, parts = states(capsys)
    assert status == 0 and parts["fails"]["found"] == "OSError: libnothing.so: cannot be loaded"
