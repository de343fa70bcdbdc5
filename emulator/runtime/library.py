"""Compiles the runtime's C++ once, by content, and loads it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from emulator.build_cache import built
from emulator.compiler import COMMON, compiler, compiler_key, run
from emulator.errors import CompileError

FOLDER = Path(__file__).parent
HEADERS = sorted(FOLDER.glob("*.h"))


@functools.cache
def runtime() -> ctypes.CDLL:
    """The runtime's library."""
    return load_cpp(FOLDER, HEADERS)


def load_cpp(folder: Path, headers: Iterable[Path]) -> ctypes.CDLL:
    """The .cpp files of a folder as one library, which sees the libraries loaded before and is seen by those loaded later.

    headers: all that the files include. Raises NoCompiler, CompileError.
    """
    sources = sorted(folder.glob("*.cpp"))
    key = compiler_key(folder.name, *COMMON, *(path.read_bytes() for path in [*sources, *headers]))
    return ctypes.CDLL(str(built(key, lambda to: _build(sources, to))), mode=ctypes.RTLD_GLOBAL)


def _build(sources: list[Path], to: Path) -> None:
    objects = [to.with_name(f"{source.stem}.o") for source in sources]
    with ThreadPoolExecutor() as pool:
        made = list(
            pool.map(lambda s, o: run(compiler()[0], "-O2", "-g1", *COMMON, "-c", s, "-o", o), sources, objects)
        )
    made.append(run(compiler()[0], "-shared", *objects, "-o", to, "-lrt", "-pthread"))
    if wrong := [m.stderr for m in made if m.returncode]:
        raise CompileError(f"{sources[0].parent} does not compile with {compiler()[1]}:\n{wrong[0]}")
