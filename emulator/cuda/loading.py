"""Loads a .cu file: through g++, or through nvcc if it has code that g++ cannot compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from flash_attest.emulator.cuda import build, nvcc
from flash_attest.emulator.cuda.compiled import compile_through_nvcc
from flash_attest.emulator.cuda.module import CudaFile
from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.runtime import watch

BY_NVCC = 'these errors are those of g++: if nvcc compiles the file, load(..., through="nvcc") runs it'


def load(
    path: str | Path,
    *names: str,
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | Path] = (),
    level: str = build.LEVEL,
    through: str | None = None,
) -> CudaFile:
    """Compile a .cu for the CPU (once; later it comes from the cache).

    names: C++ expressions that name functions of the file, host functions or kernels:
    "flash_forward", "scale<float, 4>". defines: macros, {"BLOCK": 32}. include: folders of its
    headers. level: optimisation of the traced build. through: "g++" or "nvcc"; None: g++, and nvcc
    for code that the g++ route refuses, such as inline PTX. Raises FileNotFoundError, ValueError
    without a name, CompileError, Refused with the line of something that is not covered,
    NoCompiler.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if not names:
        raise ValueError(f'load({path.name!r}): name the functions to be called, as in load({path.name!r}, "forward")')
    flags = [f"-D{name}={value}" for name, value in (defines or {}).items()]
    flags += [f"-I{Path(folder).resolve()}" for folder in [path.parent, *include]]
    if through not in (None, "g++", "nvcc"):
        raise ValueError(f'through={through!r}: should be "g++", "nvcc" or None')
    if through == "nvcc":
        return compile_through_nvcc(path, names, tuple(flags))
    loaded = CudaFile(path, names, tuple(flags), level)
    try:
        # Build the variant that is used next, so that compiler errors are raised now.
        loaded.entries(watch.needs_traced_build())
    except Refused as refused:
        if through == "g++" or not refused.by_nvcc:
            raise
        if nvcc.nvcc() is None:
            raise Refused(f"{refused.reason}; {nvcc.NONE}", refused.file, refused.line) from None
        return compile_through_nvcc(path, names, tuple(flags))
    except CompileError as error:
        if through == "g++" or nvcc.nvcc() is None:
            raise
        raise CompileError(f"{error}\n{BY_NVCC}") from None
    return loaded
