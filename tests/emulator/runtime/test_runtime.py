"""The runtime without any kernel family: a kernel in plain C++ on kernel_api.h is launched, traced
and refused.
"""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flash_attest.emulator.compiler import COMMON, compiler
from flash_attest.emulator.observation import Action, Kind, Space
from flash_attest.emulator.runtime import library, watch
from flash_attest.emulator.runtime.calls import memory_of
from flash_attest.emulator.runtime.library import compiled_cpp, runtime
from flash_attest.races.tracing import trace
from tests.places import ROOT
from tests.runs import python

SOURCE = Path(__file__).parent / "sources" / "rotate.cpp"


@pytest.fixture(scope="module")
def rotate(tmp_path_factory):
    """Return rotate(threads, barrier) -> out and the LaunchStatus with its text.

    The function passes observations on, as a kernel family does.
    """
    path = tmp_path_factory.mktemp("runtime") / "rotate.so"
    subprocess.run([compiler()[0], "-g", "-O1", *COMMON, "-shared", "-I", ROOT, SOURCE, "-o", path], check=True)
    runtime()
    library = ctypes.CDLL(str(path))

    def call(threads, barrier):
        x, out, text = torch.zeros(threads), torch.zeros(threads), ctypes.create_string_buffer(256)
        with memory_of([("x", x), ("out", out)]) as memory:
            status = library.run(*map(ctypes.c_void_p, memory.addresses), threads, barrier, text)
            if watch.current():
                watch.current().observe(memory.take_observations())
        return out, status, text.value.decode()

    return call


def test_a_kernel_runs(rotate):
    out, status, _ = rotate(64, True)
    assert status == 0 and torch.equal(out, torch.arange(64.0).roll(-1))


def test_a_race_is_found_at_its_lines(rotate):
    assert trace(lambda: rotate(64, True)) == []
    (finding,) = trace(lambda: rotate(64, False), seed=1)
    assert (finding.kind, finding.space, finding.tensor) == (Kind.RACE, Space.GLOBAL, "x")
    assert {side.what for side in finding.sides} == {Action.READ, Action.WRITE}
    assert {site.text for site in finding.sites} == {"announce(p->x + i, WRITE);", "announce(p->x + next, READ);"}


def test_a_launch_that_no_gpu_accepts_is_refused(rotate):
    _, status, text = rotate(2000, True)
    assert status != 0 and text == "rotate, 2000x1x1 = 2000 threads a block: at most 1024, and 64 in z"


def test_the_runtime_and_tracing_import_no_family():
    program = (
        "import sys, flash_attest.races.tracing, flash_attest.emulator.runtime.calls\n"
        "print([m for m in sys.modules if 'flash_attest.emulator.cuda' in m])"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stderr


OPERATORS = """
import sys, torch
from flash_attest.emulator.runtime.fresh import OperatorsSeen

class Seen(OperatorsSeen):
    def done(self, func, args, kwargs, result):
        seen.append(func.name())

def compiled(x):
    torch._dynamo.graph_break()
    return torch.empty(2).copy_(x.sin())

runs = []
with Seen("cpu"):
    for run in (lambda: torch.ones(2), lambda: torch.compile(compiled, backend="eager")(one)):
        seen = []
        one = run()
        runs.append((seen, "torch._dynamo" in sys.modules))
print(runs)
"""


def test_operators_are_seen_without_the_compiler_and_beside_it():
    """Importing torch._dynamo takes seconds, in each process that traces."""
    run = python("-c", OPERATORS)
    uncompiled, compiled = (["aten::ones"], False), (["aten::empty.memory_format", "aten::sin", "aten::copy_"], True)
    assert run.stdout == f"{[uncompiled, compiled]}\n", run.stderr


def test_a_runtime_that_cannot_be_built_leaves_no_watch_behind(monkeypatch):
    def no_compiler():
        raise RuntimeError("no g++ found")

    with monkeypatch.context() as patch:
        patch.setattr(watch, "runtime", no_compiler)
        with pytest.raises(RuntimeError, match="no g"), watch.watching(list.append, 0, 0.0, 1.0):
            pass
    assert watch.current() is None


def test_fibers_switch_where_the_compiler_checks_longjmp(tmp_path, monkeypatch):
    """Ubuntu's g++ defines _FORTIFY_SOURCE by itself. The check would abort: a fiber has a stack of
    its own.
    """
    wrapper = tmp_path / "g++"
    wrapper.write_text(f'#!/bin/sh\nexec {compiler()[0]} -D_FORTIFY_SOURCE=2 "$@"\n')
    wrapper.chmod(0o755)
    for file in (library.FOLDER / "fibers.cpp", *library.HEADERS):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(library, "compiler", lambda: (str(wrapper), "fortified"))
    built = compiled_cpp(tmp_path, [])
    assert b"_longjmp" in built.read_bytes() and b"longjmp_chk" not in built.read_bytes()
