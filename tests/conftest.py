"""The options --thorough and --page, and fixtures that several rooms share."""

import gc
import hashlib
import io
import json
import os
import sys
import textwrap
from collections.abc import Iterator

import pytest
import torch

from flash_attest.emulator.compiler import no_compiler
from flash_attest.emulator.cuda import load
from flash_attest.properties.cases import cover
from flash_attest.properties.machine import gpus
from tests import huge_pages, scheduling, thorough
from tests.plugins.patient import ENOUGH, LIMITS
from tests.scheduling import pytest_xdist_auto_num_workers, pytest_xdist_make_scheduler  # noqa: F401  (hooks)
from tests.thorough import (  # noqa: F401  (hooks)
    pytest_configure,
    pytest_deselected,
    pytest_testnodedown,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --thorough, --page and --wild."""
    thorough.pytest_addoption(parser)
    parser.addoption("--page", action="store_true", help="test the pages in a browser, which is installed if need be")
    parser.addoption(
        "--wild", metavar="DIR", help="run the proofs of wild/, with the packages in this folder of `wild`"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while tests are collected: walking all modules again and again takes a
    third of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select and order the tests."""
    thorough.pytest_collection_modifyitems(config, items)
    scheduling.in_order(config, items)


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of later garbage collections, and make forks cheap.

    Otherwise each collection that a test starts walks all of them, which takes a second.
    """
    gc.collect()
    gc.freeze()
    huge_pages.collapse()


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Limits torch to one thread. Tensors are tiny, and on a busy machine two threads that wait for
    each other take thirty times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def one_name_for_each_module():
    """Finds rooms that a test imports as impls.x beside flash_attest.impls.x. All kernels of such a
    module would be compiled once more.
    """
    yield
    twice = [name for name in list(sys.modules) if f"flash_attest.{name}" in sys.modules and not _other(name)]
    assert not twice


def _other(name: str) -> bool:
    """Return whether flash_attest has a module of this name that is another file."""
    own, other = (getattr(sys.modules[each], "__file__", None) for each in (name, f"flash_attest.{name}"))
    return own is None or other is None or not os.path.samefile(own, other)


@pytest.fixture
def gpus_stay(monkeypatch):
    """Keeps a program called with --device cpu from hiding GPUs from later tests."""
    monkeypatch.setattr(gpus, "hide_gpus", lambda: None)


@pytest.fixture
def patient(monkeypatch):
    """Gives searches for smaller cases and further findings enough time on a busy machine."""
    for module, name in LIMITS:
        monkeypatch.setattr(module, name, ENOUGH)


@pytest.fixture
def few_tried(monkeypatch):
    """Lets a law that says something about no case end after 20 cases, not after 200."""
    monkeypatch.setattr(cover, "FIRST_TRIED", 20)


@pytest.fixture(scope="session")
def gxx():
    """Skips a test that compiles kernels for the CPU if there is no g++."""
    if reason := no_compiler():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """The folder of the files of `cu`."""
    return tmp_path_factory.mktemp("texts")


@pytest.fixture
def cu(tmp_path, texts, gxx):
    """cu(text, *names) -> a loaded CUDA file.

    The same text has the same path in all tests, so that it is compiled once. A text with headers
    of its own lies beside them in the folder of the test.
    """

    def loaded(text, *names, **options):
        text = textwrap.dedent(text).lstrip()
        folder = tmp_path if '#include "' in text else texts / hashlib.sha256(text.encode()).hexdigest()[:16]
        folder.mkdir(exist_ok=True)
        path = folder / "kernel.cu"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        return load(path, *names, **options)

    return loaded


BENCH = ("--device", "cpu", "--seconds", "0.001")
SMALL = ("--dtype", "float32", "--headdim", "8", "--seqlen", "16")


@pytest.fixture
def bench(tmp_path, monkeypatch, gpus_stay):
    """Measure: bench(*options) -> (exit status, output, bench.json).

    One small size is measured, unless sized=True: then pass --size. Peaks are measured with small
    products and multiplied, so that no cell exceeds them on a busy machine.
    """
    from rich.console import Console  # imported here, because few tests need these slow imports

    from flash_attest.bench import timing
    from flash_attest.command.bench import run as measure

    measured = timing.peak

    def peak(*arguments):
        best = measured(*arguments)
        return timing.Peak(100 * best.tflops, best.product)

    monkeypatch.setitem(timing.PEAK_SIZES, "cpu", (64,))
    monkeypatch.setattr(timing, "peak", peak)

    def run(*options, sized=False):
        console = Console(width=400, record=True, file=io.StringIO())
        small = () if sized else SMALL
        status = measure([*BENCH, *small, "--report", str(tmp_path / "report"), *map(str, options)], console)
        return status, console.export_text(), json.loads((tmp_path / "report" / "bench.json").read_text())

    return run


BENCHED = """
import torch
from flash_attest.impls import Implementation, Supports
from flash_attest.impls.torch_math import forward as right

CALLS = []

def forward(q, k, v, *, causal=False):
    CALLS.append(1)
    out = right(q, k, v, causal=causal)[0]
    {mistake}
    return out

IMPL = Implementation(name="mine", forward=forward, backward="autograd",
                      supports=Supports(dtypes={{torch.float32}}, headdims={{8, 16}}, causal="optional"))
"""


@pytest.fixture
def benched(tmp_path):
    """Write a file: benched(mistake) -> a file with an implementation `mine` that is correct except
    for the given line.
    """

    def write(mistake="pass"):
        file = tmp_path / "mine.py"
        file.write_text(BENCHED.format(mistake=mistake))
        return file

    return write
