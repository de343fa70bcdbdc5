"""The complete PTX of a kernel, with the functions that it links and the author's names for shared
arrays.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba_cuda
from numba.cuda import CUSource, PTXSource

from flash_attest.emulator.errors import CompileError, NotCovered

NUMBERED = re.compile(r"(?<=\.file\t)\d+|(?<=\.file )\d+|(?<=\.loc\t)\d+|(?<=\.loc )\d+|(?<=inlined_at )\d+")
# A use of a shared array in LLVM's text.
SHARED = re.compile(r'addrspace\(3\)\*? @"?(_cudapy_smem_\d+)"?[^\n]*!dbg !(\d+)')
# The first load in the atom.cas loops that Numba uses for atomic operations that PTX lacks (float
# max, 64-bit inc, ...).
VOLATILE = re.compile(r"ld\.volatile(\.global|\.shared|)\.[bsuf](32|64)(\s+%\w+,\s*\[[^\]]*\]);")
FIELD = re.compile(r'(\w+): (?:!(\d+)|"([^"]*)"|(\d+))')


def text_of(library: Any) -> str:
    """Return the PTX of a kernel's code library (numba.cuda.codegen).

    Raises NotCovered if it links anything that is neither PTX nor CUDA C++.
    """
    files = sorted(library._linking_files, key=str)
    texts = [*map(with_atomic_reads, library.get_asm_strs()), *map(linked, files)]
    return with_names("\n".join(_files_apart(texts)), library.llvm_strs)


def with_atomic_reads(ptx: str) -> str:
    """Return the PTX with the first reads of Numba's atomic loops marked as parts of an atomic
    operation.

    No other load of Numba is volatile. A plain read beside an atomic operation of another thread is
    a race (races/rule.py).
    """
    return VOLATILE.sub(r"atom\1.or.b\2\3, 0;", ptx)


def links_only_numba(library: Any) -> bool:
    """Return whether the library links only code of numba-cuda, which is identified by its
    version.
    """
    own = str(Path(numba_cuda.__file__).parent)
    return all(isinstance(code, str) and code.startswith(own) for code in library._linking_files)


# ---- what a kernel links -------------------------------------------------------------------------


def linked(code: Any) -> str:
    """Return the PTX of a linked source. Numba's float16 arithmetic is CUDA C++, and authors may
    give link=["functions.cu"].
    """
    if isinstance(code, str):
        name, kind = Path(code).name, Path(code).suffix
    else:
        name, kind = code.name, {CUSource: ".cu", PTXSource: ".ptx"}.get(type(code), "")
    if kind not in (".cu", ".ptx"):
        raise NotCovered(f"the kernel links {name}, which is neither CUDA C++ nor PTX: not covered on the CPU")
    data = Path(code).read_bytes() if isinstance(code, str) else code.data
    data = data.encode() if isinstance(data, str) else data
    return _compiled(data, name) if kind == ".cu" else data.rstrip(b"\0").decode()


@functools.lru_cache(maxsize=32)
def _compiled(source: bytes, name: str) -> str:
    """Compile CUDA C++ to PTX with NVRTC directly, because cuda.core and numba.cuda.cudadrv.nvrtc
    need a driver.
    """
    from cuda.bindings import nvrtc
    from numba.cuda.cudadrv.nvrtc import get_arch_option

    from flash_attest.emulator.devices import emulated

    def called(function: Any, *arguments: Any) -> Any:
        status, *results = function(*arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS and function is not nvrtc.nvrtcCompileProgram:
            raise CompileError(f"{name}: {function.__name__} of NVRTC fails: {status.name}")
        return results[0] if results else status

    def text(size: Any, fill: Any) -> str:
        buffer = b" " * called(size, program)
        called(fill, program, buffer)
        return buffer.rstrip(b"\0 ").decode()

    program = called(nvrtc.nvrtcCreateProgram, source, name.encode(), 0, [], [])
    try:
        options = [
            f"-arch={get_arch_option(*emulated().capability)}",
            "-rdc=true",
            *(f"-I{folder}" for folder in _includes(nvrtc)),
        ]
        status = called(nvrtc.nvrtcCompileProgram, program, len(options), [option.encode() for option in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{name}: {text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)}")
        return text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _includes(nvrtc: Any) -> Iterator[Any]:
    """Yield the include folders: Numba's own headers first, as in Numba, then the headers of the
    toolkit's wheels.
    """
    import numba.cuda.cudadrv
    from cuda import pathfinder

    folder = Path(numba.cuda.cudadrv.__file__).parent.parent
    yield folder / "include" / str(nvrtc.nvrtcVersion()[1])
    for library in ("cudart", "cccl"):
        if header := pathfinder.locate_nvidia_header_directory(library):
            yield header.abs_path
    yield folder / "memory_management"


def _files_apart(texts: list[str]) -> Iterator[str]:
    """Yield the texts, renumbering files so that each text has its own numbers."""
    used = 0
    for text in texts:
        known = {number: str(used + int(number)) for number in set(NUMBERED.findall(text))}
        yield NUMBERED.sub(lambda match, known=known: known[match[0]], text) if used else text
        used = max([used, *map(int, known.values())])


# ---- names ---------------------------------------------------------------------------------------


def with_names(ptx: str, llvm: list[str]) -> str:
    """Return the PTX with shared arrays named after the variables that hold them, because Numba
    only numbers them.
    """
    names: dict[str, str] = {}
    for module in llvm:
        for symbol, place in SHARED.findall(module):
            if symbol not in names:
                wanted = _variable(*_place(module, place)) or "shared_array"
                taken = {name for name in names.values() if re.fullmatch(rf"{re.escape(wanted)}(_\d+)?", name)}
                names[symbol] = f"{wanted}_{len(taken) + 1}" if taken else wanted
    return re.sub(r"\b_cudapy_smem_\d+\b", lambda match: names.get(match[0], match[0]), ptx)


def _place(module: str, number: str) -> tuple[str, int]:
    """Return the file and the line of a DILocation."""
    line, entry = 0, _entry(module, number)
    while entry:
        line = line or int(entry.get("line", 0))
        if "file" in entry:
            file = _entry(module, entry["file"])
            return str(Path(file.get("directory", "")) / file.get("filename", "")), line
        entry = _entry(module, entry.get("scope", ""))
    return "", 0


def _entry(module: str, number: str) -> dict[str, str]:
    match = number and re.search(rf"^!{number} = [^\n]*", module, re.M)
    return {key: a or b or c for key, a, b, c in FIELD.findall(match[0])} if match else {}


def _variable(file: str, line: int) -> str:
    """Return the variable to which the statement at this line assigns; "" if it does not assign to
    exactly one.
    """
    names = [name for first, last, name in _assigned("".join(linecache.getlines(file))) if first <= line <= last]
    return names[0] if len(names) == 1 and names[0].strip("_") else ""


@functools.lru_cache(maxsize=8)
def _assigned(source: str) -> list[tuple[int, int, str]]:
    """Return (first line, last line, variable) of each assignment."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:  # a notebook cell with magic commands
        return []
    statements = [node for node in nodes if isinstance(node, ast.Assign)]
    return [(n.lineno, n.end_lineno, t.id) for n in statements for t in n.targets if isinstance(t, ast.Name)]
