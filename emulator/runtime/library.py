"""Compiles the runtime's C++, once for each content, and loads it."""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flash_attest.emulator.build_cache import built
from flash_attest.emulator.compiler import COMMON, compiler, compiler_key, run
from flash_attest.emulator.errors import CompileError

FOLDER = Path(__file__).resolve().parent
HEADERS = sorted(FOLDER.glob("*.h"))
SOURCES = FOLDER, HEADERS


@functools.cache
def runtime() -> ctypes.CDLL:
    """Return the runtime's library."""
    return load_cpp(*SOURCES)


def load_cpp(folder: Path, headers: Iterable[Path], flags: Sequence[str] = ()) -> ctypes.CDLL:
    """Load what `compiled_cpp` compiles.

    It uses the libraries loaded before, and libraries loaded later can use it.
    """
    return ctypes.CDLL(str(compiled_cpp(folder, headers, flags)), mode=ctypes.RTLD_GLOBAL)


def compiled_cpp(folder: Path, headers: Iterable[Path], flags: Sequence[str] = ()) -> Path:
    """Compile the .cpp files of a folder to one library. Returns its path.

    headers: all that the files include. flags: compiler flags, after the usual ones. Raises
    NoCompiler, CompileError.
    """
    sources = sorted(folder.glob("*.cpp"))
    how = [*COMMON, *flags, *([processor()] if "-march=native" in flags else [])]
    key = compiler_key(folder.name, *how, *(path.read_bytes() for path in [*sources, *headers]))
    return built(key, lambda to: _build(sources, flags, to))


@functools.cache
def processor() -> str:
    """Return the features of this machine's processor, because a different machine may share the
    cache.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.node()
    wanted = ("vendor_id", "cpu family", "model\t", "flags", "CPU part", "Features")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)})) or platform.node()


def _build(sources: list[Path], flags: Sequence[str], to: Path) -> None:
    how = "-O2", "-g1", *COMMON, *flags
    headers = _precompiled(sorted(sources[0].parent.glob("*.h")), how, to.with_name("headers.h"))
    objects = [to.with_name(f"{source.stem}.o") for source in sources]
    with ThreadPoolExecutor() as pool:
        processes = list(
            pool.map(lambda s, o: run(compiler()[0], *how, "-include", headers, "-c", s, "-o", o), sources, objects)
        )
    processes.append(run(compiler()[0], "-shared", *objects, "-o", to, "-lrt", "-pthread"))
    if wrong := [m.stderr for m in processes if m.returncode]:
        raise CompileError(f"{sources[0].parent} does not compile with {compiler()[1]}:\n{wrong[0]}")


def _precompiled(headers: list[Path], how: Sequence[str], to: Path) -> Path:
    """Write a header that includes these, and compile it: reading them takes half of g++'s time
    for a file. If they do not compile, g++ says so for each file that includes them.
    """
    to.write_text("".join(f'#include "{header}"\n' for header in headers))
    run(compiler()[0], "-x", "c++-header", *how, to, "-o", f"{to}.gch")
    return to
