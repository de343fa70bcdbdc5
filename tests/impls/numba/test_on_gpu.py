"""Launches on a GPU bypass Numba's slow launch, so they must pass the same parameters."""

import ctypes
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")

from numba.cuda import dispatcher, types

from flash_attest.emulator.guards import as_cuda
from flash_attest.impls.numba import fa1, launch, on_gpu
from flash_attest.impls.numba.fa2 import make_forward
from flash_attest.impls.numba.problem import problem_of

LAST_SEEN_RIGHT = "numba-cuda 0.30.4"


def values(parameters):
    return [(type(x).__name__, x.value) if isinstance(x, ctypes._SimpleCData) else x for x in parameters]


def test_parameters_are_those_that_numba_passes(monkeypatch):
    """numba.cuda.dispatcher._Kernel._prepare_args is private.

    If this fails, change on_gpu.parameters.
    """

    def on_device(x):  # the fields that Numba reads of an array on a GPU
        layout = SimpleNamespace(strides_in_bytes=None, is_contiguous_c=True, is_contiguous_f=True)
        dtype = torch.empty(0, dtype=x.dtype).numpy().dtype
        array = SimpleNamespace(size=x.numel(), dtype=dtype, ptr=x.data_ptr(), shape=tuple(x.shape), _layout=layout)
        return SimpleNamespace(to_device=lambda returned, stream: array)

    monkeypatch.setattr(dispatcher, "wrap_arg", on_device)
    q = torch.zeros(2, 5, 3, 4)
    flat = launch.flat(q)
    problem = problem_of(q, q, q, None, (-3, 0), True, out=q)
    arguments = [flat, flat[:0], np.float32(0.5), 7, problem]
    array = types.Array(types.float32, 1, "C")
    integers = types.int64
    strides = types.NamedTuple([integers] * 3, type(problem.q))
    of_problem = types.NamedTuple([strides if isinstance(x, tuple) else integers for x in problem], type(problem))
    theirs = []
    for type_, value in zip((array, array, types.float32, integers, of_problem), arguments, strict=True):
        dispatcher._Kernel._prepare_args(
            SimpleNamespace(extensions=[], _prepare_args=_again), type_, value, 0, [], theirs
        )
    ours = on_gpu.parameters(arguments)
    assert [x[1] if isinstance(x, tuple) else x for x in values(theirs)] == [
        x[1] if isinstance(x, tuple) else x for x in values(ours)
    ], f"numba-cuda passes other parameters than {LAST_SEEN_RIGHT}"
    assert [x for x in values(ours) if isinstance(x, tuple)] == [("c_float", 0.5)]


def _again(type_, value, stream, returned, parameters):
    dispatcher._Kernel._prepare_args(
        SimpleNamespace(extensions=[], _prepare_args=_again), type_, value, stream, returned, parameters
    )


def test_kernels_are_kept_by_all_sources(tmp_path, monkeypatch):
    """Numba's key covers only the kernel's bytecode and constants; the name of the folder covers
    all sources.
    """
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path))
    on_gpu._folder.cache_clear()
    folder = on_gpu._folder()
    kernel = make_forward.__wrapped__(16, 32, 64)
    on_gpu._keep_in(folder, kernel)
    assert not on_gpu.config.CACHE_DIR  # other kernels' folder
    assert str(kernel._cache.cache_path).startswith(str(folder)) and folder.parent == tmp_path

    monkeypatch.setattr(on_gpu, "__file__", str(tmp_path / "on_gpu.py"))
    (tmp_path / "tiles.py").write_text("edited")
    on_gpu._folder.cache_clear()
    edited = on_gpu._folder()
    assert edited != folder

    assert on_gpu._version("llvmlite") != "llvmlite" and on_gpu._version("not-installed") == "not-installed"
    monkeypatch.setattr(on_gpu, "_version", lambda package: f"{package} 0")
    on_gpu._folder.cache_clear()
    assert on_gpu._folder() != edited
    on_gpu._folder.cache_clear()


def test_each_kernel_has_a_folder_of_its_own():
    """Numba writes its index of a function without a lock, so a shared index could mix up
    kernels.
    """
    half, single = (types.Array(dtype, 1, "C") for dtype in (types.float16, types.float32))
    kernels = [make(*tile) for make in (make_forward, fa1.make_forward) for tile in ((16, 32, 64), (32, 32, 64))]
    folders = [on_gpu._folder_of(kernel, (array,)) for kernel in kernels for array in (half, single)]
    assert len(set(folders)) == 8 and {folder.parent for folder in folders} == {on_gpu._folder()}


def test_a_thread_gets_a_context_before_its_first_launch(monkeypatch):
    """Autograd's threads may have no context, because PyTorch needs none for cached memory."""
    done = []
    monkeypatch.setattr(on_gpu.cuda, "current_context", lambda: done.append("context"))
    monkeypatch.setattr(on_gpu, "_compile", lambda *_: None)
    monkeypatch.setattr(on_gpu, "_compiled", {})
    monkeypatch.setattr(on_gpu, "_stream", lambda *_: None)
    monkeypatch.setattr(on_gpu, "_threads", threading.local())
    monkeypatch.setattr(on_gpu.core, "launch", lambda *_: done.append("launch"))

    def launch_twice():
        for _ in range(2):
            on_gpu.launch("kernel", 1, 0, [torch.zeros(1)])

    with as_cuda():
        launch_twice()
        thread = threading.Thread(target=launch_twice)
        thread.start()
        thread.join()
    assert done == ["context", "launch", "launch"] * 2
