"""A .cu is compiled once and cached by content."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest
import torch

from flash_attest.emulator.cuda import build, load
from flash_attest.emulator.errors import EmulatorError
from tests.emulator.cuda.sources.scale import SCALE


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Set up an empty cache of compiled files."""
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_file_is_compiled_once_and_again_when_it_or_a_header_changes(own_cache, tmp_path, monkeypatch):
    (tmp_path / "h.cuh").write_text("#define VALUE 1\n")
    path = tmp_path / "k.cu"
    path.write_text('#include "h.cuh"\n__global__ void k(int* x) { x[0] = VALUE; }\n')
    compiled = []
    compile_ = build._compile
    monkeypatch.setattr(build, "_compile", lambda *a: (compiled.append(1), compile_(*a)))

    def value():
        out = torch.zeros(1, dtype=torch.int32)
        load(path, "k").k.launch(1, 1)(out)
        return out.item(), len(compiled)

    assert value() == (1, 1) and value() == (1, 1)
    (tmp_path / "h.cuh").write_text("#define VALUE 2\n")
    assert value() == (2, 2)
    path.write_text(path.read_text().replace("= VALUE", "= 10 * VALUE"))
    assert value() == (20, 3)
    (tmp_path / "h.cuh").write_text("#define VALUE 1\n")
    assert value() == (10, 4)


def test_the_shim_is_compiled_once_for_all_files(own_cache, tmp_path):
    """A small file is still small after preprocessing.

    A precompiled header that cannot be used would only cost time.
    """
    for name in ("a", "b", "c"):
        path = tmp_path / f"{name}.cu"
        path.write_text(SCALE)
        x = torch.ones(3)
        assert load(path, "scale_all").scale_all(x, x, 2.0, 3) == 0 and x.tolist() == [2.0, 2.0, 2.0]
        (compiled,) = own_cache.glob("*.h.gch")
        text, headers = build._preprocessed(path, (), (*build.PLAIN, *build.COMMON, *build.HIDDEN))
        assert headers == [] and (len(text) < 10_000) == (name != "c")
        if name == "b":
            compiled.write_bytes(b"")


def test_a_large_file_says_that_it_is_being_compiled(own_cache, tmp_path, capsys):
    """The message is printed once. A file from the cache and a small file print nothing."""
    path = tmp_path / "k.cu"
    for comment, words in (("", ""), ("/" * build.LARGE, "compiling k.cu for the CPU, once: 5 to 20 s\n")):
        path.write_text(f"{SCALE}\n{comment}\n")
        load(path, "scale_all")
        assert capsys.readouterr() == ("", words)
        load(path, "scale_all")
        assert capsys.readouterr() == ("", "")


def _load_and_count(path: str, queue) -> None:
    built = []
    compile_ = build._compile
    build._compile = lambda *a: (built.append(1), compile_(*a))
    load(path, "scale_all")
    queue.put(len(built))


def test_processes_that_want_the_same_file_compile_it_once(own_cache, tmp_path):
    path = tmp_path / "k.cu"
    path.write_text(SCALE)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_load_and_count, args=(str(path), queue)) for _ in range(3)]
    for worker in workers:
        worker.start()
    assert sorted(queue.get(timeout=120) for _ in workers) == [0, 0, 1]
    for worker in workers:
        worker.join()


def test_a_cache_that_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLASH_ATTEST_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        EmulatorError, match=r"file/cache, for compiled files, cannot be written to .*FLASH_ATTEST_CACHE"
    ):
        build.cache_folder()
    monkeypatch.delenv("FLASH_ATTEST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert build.cache_folder() == Path(tempfile.gettempdir()) / f"flash-attest-{os.getuid()}"
