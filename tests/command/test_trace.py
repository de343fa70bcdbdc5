"""flash-attest trace."""

import time

import pytest

from flash_attest.command import trace
from tests.command.test_command import refused
from tests.runs import check as flash_attest

RACY = """
__global__ void kernel(const float* x, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
void reverse(const float* x, float* out) { kernel<<<1, 64>>>(x, out); }
"""
LAUNCHES = """
import sys
import torch
from flash_attest.emulator.cuda import load

def launch(which="racy.cu"):
    load(which, "reverse").reverse(torch.arange(64.0), torch.empty(64))

def raises():
    raise ValueError("what went wrong")

if __name__ == "__main__":
    print("arguments", sys.argv[1:])
    launch(*sys.argv[1:])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced")
    (folder / "racy.cu").write_text(RACY)
    barrier = "    __syncthreads();\n    out["
    (folder / "right.cu").write_text(RACY.replace("    out[", barrier))
    (folder / "launches.py").write_text(LAUNCHES)
    (folder / "nothing.py").write_text("print('nothing')\n")
    return folder


@pytest.mark.parametrize("target", ["launches.py", "launches.py:launch"])
def test_a_race_is_printed_with_both_lines(target, folder, gxx):
    run = flash_attest("trace", target, folder=folder)
    assert run.returncode == 1, run.stdout
    assert "race: tile[" in run.stdout and "racy.cu:4" in run.stdout and "racy.cu:5" in run.stdout
    assert run.stdout.splitlines()[-1] == "1 found in 1 launch"


def test_a_kernel_that_is_right_is_not_red(folder, gxx):
    run = flash_attest("trace", "launches.py", "--seed", "3", "--", "right.cu", folder=folder)
    assert run.returncode == 0 and "arguments ['right.cu']" in run.stdout, run.stdout
    assert run.stdout.splitlines()[-1].startswith("nothing found in 1 launch: no race")


def test_a_file_that_launches_nothing_proves_nothing(folder):
    run = flash_attest("trace", "nothing.py", folder=folder)
    assert run.returncode == 2, run.stdout
    assert "no kernel was launched in the emulator, so nothing was traced; name the function" in run.stdout


def test_a_file_that_raises_shows_its_own_frames_only(folder):
    run = flash_attest("trace", "launches.py:raises", folder=folder)
    assert run.returncode == 2 and "ValueError: what went wrong" in run.stdout
    assert "launches.py raised ValueError" in run.stdout.splitlines()[-1] and "command/trace.py" not in run.stdout


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import torch\n\ntorch.zeros(3, device='cuda')\n", "asks.py:3 asks torch for a GPU, and none is used here"),
        ("import os\nos._exit(0)\n", "asks.py ended its process: exit status 0"),
        ("import os\nos.abort()\n", "asks.py ended its process: signal 6 (aborted)"),
        ("import sys\nsys.exit('no')\n", "asks.py ended with exit status no"),
    ],
)
def test_a_file_that_cannot_be_traced_is_named(source, words, tmp_path):
    (tmp_path / "asks.py").write_text(source)
    run = flash_attest("trace", "asks.py", folder=tmp_path)
    assert run.returncode == 2 and f"flash-attest trace: {words}" in run.stdout.splitlines()[-1], run.stdout
    assert "Traceback" not in run.stdout


LEAVES = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    signal.alarm(55)
    time.sleep(600)
{ends}
"""


@pytest.mark.parametrize(
    ("ends", "words"), [("", "no kernel was launched"), ("os._exit(3)", "leaves.py ended its process: exit status 3")]
)
def test_a_file_that_leaves_a_process_behind_ends(ends, words, tmp_path):
    """The process has inherited all open files."""
    (tmp_path / "leaves.py").write_text(LEAVES.format(ends=ends))
    began = time.monotonic()
    run = flash_attest("trace", "leaves.py", folder=tmp_path)
    assert run.returncode == 2 and words in run.stdout.splitlines()[-1], run.stdout
    assert time.monotonic() - began < 50


def test_an_implementation_is_traced_by_check(tmp_path, right):
    (tmp_path / "mine.py").write_text(right.format(name="mine"))
    run = flash_attest("trace", "mine.py:IMPL", folder=tmp_path)
    words = "mine.py: IMPL is an Implementation: flash-attest check mine.py:IMPL --law no_race_is_traced traces it"
    assert run.returncode == 2 and words in run.stdout


def test_a_function_that_is_not_there_is_named(folder):
    run = flash_attest("trace", "launches.py:lanch", folder=folder)
    assert run.returncode == 2 and "there is no function lanch in it; did you mean launch?" in run.stdout


def test_a_wrong_command_is_one_line(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert "there is no file lanches.py; did you mean launches.py?" in refused(trace.run, "lanches.py", capsys=capsys)
    assert "--limit 0: should be more than 0" in refused(trace.run, "nothing.py", "--limit", 0, capsys=capsys)
