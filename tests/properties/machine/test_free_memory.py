"""Free memory is read off nvidia-smi, here a program in its place."""

import pytest

from flash_attest.properties.machine.gpus import free_memory

TABLE = "0, GPU-aa11, 81079\\n1, GPU-bb22, 15360"


@pytest.fixture
def says(tmp_path, monkeypatch):
    """Puts a program in the place of nvidia-smi, which prints a text."""

    def program(text, status=0):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\nprintf '{text}\\n'\nexit {status}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return program


@pytest.mark.parametrize(
    ("gpus", "mib"),
    [(["0", "1"], [81079, 15360]), (["1"], [15360]), (["GPU-bb22", "0"], [15360, 81079]), ([], [])],
    ids=str,
)
def test_free_memory_is_that_of_the_visible_gpus(gpus, mib, says):
    says(TABLE)
    assert free_memory(gpus) == [each << 20 for each in mib]


@pytest.mark.parametrize(
    ("text", "status", "gpu"),
    [(TABLE, 0, "MIG-cc33"), (TABLE, 9, "0"), ("0, GPU-aa11, [N/A]", 0, "0"), ("No devices were found", 0, "0")],
    ids=["a part of a GPU", "an error", "not available", "none"],
)
def test_where_it_does_not_say_cuda_is_asked(text, status, gpu, says):
    says(text, status)
    assert free_memory([gpu]) is None


def test_without_nvidia_smi_cuda_is_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert free_memory(["0"]) is None
