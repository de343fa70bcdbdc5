"""The operators for CUDA tensors are built once, and again after a change, with a clear error if
that fails.

nvcc is a fake here, so that the tests run everywhere; test_operators.py compiles on a GPU.
test_bindings.py tests the bindings.
"""

import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from flash_attest.emulator.build_cache import built, cache_folder
from flash_attest.emulator.errors import EmulatorError
from flash_attest.impls.cuda import extension

FOLDER = Path(extension.__file__).parent
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, a toolkit whose nvcc prints a version, one kind of GPU, no loaded library."""
    toolkit = tmp_path / "toolkit" / "bin"
    toolkit.mkdir(parents=True)
    (toolkit / "nvcc").write_text("#!/bin/sh\necho release 13.0\n")
    (toolkit / "nvcc").chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(toolkit.parent))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "cache"))
    forget()
    yield cache_folder()
    forget()


def forget():
    extension.load.cache_clear()
    extension._nvcc_version.cache_clear()


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of the sources that a test may change."""
    copy = tmp_path / "sources"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(extension, "FOLDER", copy)
    return copy


# --- when it is built -----------------------------------------------------------------------------


def test_every_source_is_part_of_the_key(cache, sources):
    compiled = [path for path in sources.iterdir() if path.suffix in (".cu", ".cuh", ".h", ".cpp")]
    assert {"fa1.cu", "fa2_forward.cuh", "binding.h", "fa2_binding.cpp"} <= {path.name for path in compiled}
    keys = [extension.key("fa2")]
    for path in compiled:
        path.write_text(path.read_text() + "\n")
        keys.append(extension.key("fa2"))
    (sources / "new.cuh").write_text("")
    keys.append(extension.key("fa2"))
    assert len(set(keys)) == len(keys) == len(compiled) + 2
    (sources / "host.py").write_text("")  # not a source of the library
    assert extension.key("fa2") == keys[-1] != extension.key("fa1")


CHANGES = {
    "gpu": lambda patch, toolkit: patch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0"),
    "flags": lambda patch, toolkit: patch.setattr(extension, "NVCC_FLAGS", ("-O1",)),
    "flags_of_g++": lambda patch, toolkit: patch.setattr(extension, "CXX_FLAGS", ("-O1",)),
    "torch": lambda patch, toolkit: patch.setattr(torch, "__version__", "9.9.9"),
    "cuda_of_torch": lambda patch, toolkit: patch.setattr(torch.version, "cuda", "99.9"),
    "nvcc": lambda patch, toolkit: (toolkit / "nvcc").write_text("#!/bin/sh\necho release 13.1\n"),
    "another_gxx": lambda patch, toolkit: patch.setenv("CXX", "g++-99"),
    "flags_of_the_environment": lambda patch, toolkit: patch.setenv("NVCC_APPEND_FLAGS", "--use_fast_math"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_tools_flags_and_gpus_are_part_of_the_key(cache, change, monkeypatch):
    before = extension.key("fa2")
    assert before == extension.key("fa2")
    change(monkeypatch, cache.parent / "toolkit" / "bin")
    forget()
    assert extension.key("fa2") != before


def test_library_is_built_for_the_gpus_that_are_present(monkeypatch):
    capabilities = [(9, 0), (8, 0), (9, 0)]
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda n: capabilities[n])
    assert extension.architectures() == "8.0;9.0"
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5+PTX")
    assert extension.architectures() == "7.5+PTX"


# --- once -----------------------------------------------------------------------------------------


def load_with(build, queue=None):
    """Call load("fa2") with another build step. Returns the path that it would load."""
    loaded = []
    extension.build, torch.ops.load_library = build, loaded.append
    extension.load("fa2")
    if queue is not None:
        queue.put(str(loaded[0]))
    return loaded[0]


@pytest.fixture
def restored(monkeypatch):
    """Restore what load_with replaces after the test."""
    monkeypatch.setattr(extension, "build", extension.build)
    monkeypatch.setattr(torch.ops, "load_library", torch.ops.load_library)


def test_concurrent_processes_build_once(cache, restored, tmp_path):
    def build(name, to):
        with open(tmp_path / "built", "a") as log:
            log.write(f"{name}\n")
        time.sleep(0.3)  # the others start meanwhile
        to.write_text("whole")

    queue = FORK.Queue()
    workers = [FORK.Process(target=load_with, args=(build, queue)) for _ in range(4)]
    for worker in workers:
        worker.start()
    paths = {queue.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join()
    assert (tmp_path / "built").read_text() == "fa2\n"
    assert paths == {str(cache / f"{extension.key('fa2')}.so")}
    assert load_with(lambda name, to: pytest.fail("built again")).read_text() == "whole"


def test_a_library_in_a_read_only_cache_is_used(cache, monkeypatch):
    """A container image, for example, may have a cache that was filled when the image was built."""
    library = built("whole", lambda to: to.write_text("library"))

    def read_only(folder):
        raise EmulatorError(f"{folder} cannot be written to")

    monkeypatch.setattr("flash_attest.emulator.build_cache._writable", read_only)
    assert built("whole", lambda to: pytest.fail("built again")) == library
    with pytest.raises(EmulatorError, match="cannot be written to"):
        built("another", lambda to: to.write_text("library"))


def test_a_killed_build_does_not_block_the_next(cache, restored):
    def hang(name, to):
        (to.parent / "lock").write_text("")  # PyTorch's lock, for which builds in the same folder would wait
        to.with_name("half.so").write_text("half")
        time.sleep(600)

    killed = FORK.Process(target=load_with, args=(hang,))
    killed.start()
    deadline = time.monotonic() + 60
    while not list(cache.glob("*/half.so")):
        assert time.monotonic() < deadline, "the build did not start"
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    assert list(cache.glob("*/lock"))

    assert load_with(lambda name, to: to.write_text("whole")).read_text() == "whole"


# --- by PyTorch -----------------------------------------------------------------------------------


def test_pytorch_builds_one_library_in_a_new_folder(cache, monkeypatch):
    calls = []

    def compile_(name, sources, *, build_directory, **options):
        calls.append((name, [Path(source).name for source in sources], options))
        assert list(Path(build_directory).iterdir()) == []
        assert str(cache.parent / "toolkit") == cpp_extension.CUDA_HOME
        (Path(build_directory) / f"{name}_v1.so").write_text("a library")  # PyTorch counts the builds of a name

    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)  # as if PyTorch had been imported before CUDA_HOME was set
    monkeypatch.setattr(cpp_extension, "load", compile_)
    path = built("some_key", lambda to: extension.build("fa1", to))
    ((name, sources, options),) = calls
    assert path == cache / "some_key.so" and path.read_text() == "a library"
    assert (name, sources) == ("flash_attest_cuda_fa1", ["fa1.cu", "fa1_binding.cpp"])
    assert options["is_python_module"] is False and "-DUSE_CUDA" in options["extra_cflags"]


OUTPUTS = {
    "an error of nvcc": (
        "Error building extension 'flash_attest_cuda_fa2': [1/3] /cuda/bin/nvcc -c fa2.cu\nFAILED: fa2.cuda.o\n"
        '/somewhere/fa2.cu(12): error: identifier "tile" is undefined\n\n1 error detected in the compilation of "fa2.cu".\n'
        "ninja: build stopped: subcommand failed.",
        '/somewhere/fa2.cu(12): error: identifier "tile" is undefined',
    ),
    "no ninja": ("Ninja is required to load C++ extensions", "Ninja is required to load C++ extensions"),
}


@pytest.mark.parametrize(("output", "shown"), OUTPUTS.values(), ids=OUTPUTS)
def test_a_failed_build_gives_the_reason_and_leaves_no_files(cache, monkeypatch, output, shown):
    def fail(*arguments, build_directory, **options):
        (Path(build_directory) / "half.o").write_text("")
        raise RuntimeError(output)

    monkeypatch.setattr(cpp_extension, "load", fail)
    path = os.environ["PATH"]
    for _ in range(2):  # the failure is not cached
        with pytest.raises(RuntimeError) as failed:
            extension.load("fa2")
        first, second, *_, last = str(failed.value).splitlines()
        assert first == "fa2.cu and fa2_binding.cpp could not be built for CUDA tensors:"
        assert second == shown
        assert f"Tried with {cache.parent}/toolkit/bin/nvcc for 9.0" in last and "TORCH_CUDA_ARCH_LIST" in last
        assert "FAILED" not in str(failed.value)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []
    assert os.environ["PATH"] == path


def test_without_nvcc_the_error_says_what_to_install(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"no nvcc found, which compiles fa1\.cu for CUDA tensors: .*CUDA_HOME"):
        extension.load("fa1")


def test_headers_are_those_of_the_nvcc_that_a_link_or_a_script_calls(tmp_path):
    real, link, script = (tmp_path / name / "bin" / "nvcc" for name in ("real", "link", "script"))
    for path in (real, link, script):
        path.parent.mkdir(parents=True)
    real.write_text(f"#!/bin/sh\necho '#$ _SPACE_= ' >&2\necho '#$ _HERE_={real.parent}' >&2\n")
    script.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    for path in (real, script):
        path.chmod(0o755)
    link.symlink_to(real)
    assert extension.toolkit(str(script)) == str(tmp_path / "real")
    (tmp_path / "real" / "include").mkdir()
    (tmp_path / "real" / "include" / "cuda_runtime.h").write_text("")
    real.write_text("#!/bin/sh\nexit 1\n")  # it is not run if the headers are beside it
    assert extension.toolkit(str(link)) == str(tmp_path / "real")


def test_nvcc_is_found_where_pytorch_looks(monkeypatch, tmp_path):
    for name in ("home", "elsewhere"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "nvcc").write_text("")
        (tmp_path / name / "bin" / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere" / "bin"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert extension.nvcc() == str(tmp_path / "home" / "bin" / "nvcc")
    monkeypatch.delenv("CUDA_HOME")
    assert extension.nvcc() == str(tmp_path / "elsewhere" / "bin" / "nvcc")
