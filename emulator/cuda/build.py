"""Compiles authors' .cu files with g++ into the user's cache, once for each content."""

from __future__ import annotations

import ctypes
import functools
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from flash_attest.emulator.build_cache import built, cache_folder, counted, read_list, write
from flash_attest.emulator.compiler import COMMON, compiler, compiler_key, run
from flash_attest.emulator.cuda.source import rewrite
from flash_attest.emulator.errors import CompileError, Refused
from flash_attest.emulator.runtime.library import HEADERS, load_cpp, runtime

HERE = Path(__file__).resolve().parent
INCLUDE, HOST, EMULATOR = HERE / "include", HERE / "host", HERE.parent
# For the same reason as -fno-gnu-unique: the plain and the traced library of a file must not share
# a variable.
HIDDEN = ("-fvisibility=hidden",)
PLAIN = ("-O2", "-g1")
# -fno-optimize-sibling-calls and -fno-crossjumping keep a separate line for each access. With
# -fno-tree-loop-distribute-patterns a loop does not become a call of memset. With
# -fno-tree-vectorize accesses stay as wide as they were written. With -fno-builtin-memcpy and
# similar options these functions stay calls, see NOT_ANNOUNCED.
TRACED = (
    "-g1", "-fsanitize=thread,alignment", "--param", "tsan-instrument-func-entry-exit=0", "-fno-optimize-sibling-calls",
    "-fno-crossjumping", "-fno-tree-loop-distribute-patterns", "-fno-tree-vectorize", "-fno-ipa-icf",
    "-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset",
)  # fmt: skip
LEVEL = "-O1"  # optimisation of the traced build, unless the caller names another level
# Bytes of a file with its headers; above this, g++ takes seconds and a message is printed.
LARGE = 40_000
# A header of include/ refuses these, whichever compiler is used, because nvcc would not help
# either.
NOT_BY_NVCC = ("PyTorch's headers", "cuBLAS", "cuRAND", "Thrust", "the driver API", "CUDA graphs")
# g++ does not instrument them, so calls are redirected to host/hooks.cpp
NOT_ANNOUNCED = ("memcpy", "memmove", "memset")


@functools.cache
def host() -> ctypes.CDLL:
    """Load the library of host/ on top of the runtime's library; authors' libraries use names of
    both.
    """
    runtime()
    return load_cpp(*host_sources())


def host_sources() -> tuple[Path, list[Path]]:
    """Return the folder of the library of host/, and all that its files include."""
    return HOST, [*HEADERS, *sorted(HOST.glob("*.h")), *sorted((INCLUDE / "shim").glob("*"))]


def library(source: Path, names: Iterable[str], flags: tuple[str, ...], traced: bool, level: str = LEVEL) -> Path:
    """Return the compiled library of a .cu, with an entry for each of `names`.

    Raises NoCompiler, CompileError (g++'s message), Refused (what is not covered, with the line).
    """
    names = list(names)
    how = (*(TRACED if traced else PLAIN), *((level,) if traced else ()), *COMMON, *HIDDEN)
    key = compiler_key(str(source), source.read_bytes(), *names, *flags, *how, _shim())
    folder = cache_folder()
    known = folder / f"{key}.headers.json"

    def with_headers(headers: list[str]) -> str:
        return compiler_key(key, *(Path(p).read_bytes() for p in headers))

    def make(to: Path) -> None:
        if sum(Path(p).stat().st_size for p in [source, *headers]) > LARGE:
            print(
                f"compiling {source.name} for the CPU{', traced' * traced}, once: 5 to 20 s",
                file=sys.stderr,
                flush=True,
            )
        _compile(text, how, names, source, traced, to)

    # The author's headers are known after the first compilation, so the key needs no preprocessing.
    headers = read_list(known)
    if headers is not None and all(Path(p).exists() for p in headers):
        final = folder / f"{with_headers(headers)}.so"
        if final.exists():
            return final
    # The file or one of its headers is new.
    with counted(), FileLock(folder / f"{key}.lock"):
        preprocessed, headers = _preprocessed(source, flags, how)
        text, kernels = rewrite(preprocessed, str(INCLUDE))
        text += _entries(names, kernels, traced)
        write(known, json.dumps(headers))
        return built(with_headers(headers), make)


@functools.cache
def _shim() -> str:
    """Return a key of everything else that compiled files depend on. If it changes, they are
    recompiled.
    """
    files = sorted(p for p in INCLUDE.rglob("*") if p.is_file())
    files += [EMULATOR / "runtime" / "kernel_api.h", Path(__file__), HERE / "source.py"]
    return compiler_key(*(p.read_bytes() for p in files))


def _compiled_shim(how: tuple[str, ...]) -> Path:
    """Write a header that includes the shim, and a precompiled header beside it, which g++ uses
    instead.

    The shim and the C++ headers that it includes have 26,000 lines; a small kernel has ten.
    """

    def make(to: Path) -> None:
        header = cache_folder() / f"{key}.h"
        write(header, f'#include "{INCLUDE / "cuda_shim.h"}"\n')
        if run(compiler()[0], "-x", "c++-header", *how, "-isystem", INCLUDE, header, "-o", to).returncode:
            to.write_bytes(b"")  # g++ ignores an empty one and reads the header

    key = compiler_key(*how, str(INCLUDE), _shim())
    return built(key, make, ".h.gch").with_suffix("")


def _preprocessed(source: Path, flags: tuple[str, ...], how: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the .cu with all includes and macros expanded, and the author's headers that it
    includes.

    A pragma takes the place of the shim, which is compiled already.
    """
    # The author's macros are defined after the shim, so that a macro named T does not break it.
    defines = cache_folder() / f"{compiler_key(*flags)}.defines.h"
    lines = [flag.removeprefix("-D").partition("=") for flag in flags if flag.startswith("-D")]
    write(defines, "".join(f"#define {name} {value}\n" for name, _, value in lines))
    shim = _compiled_shim(how)
    process = run(
        compiler()[0], "-E", "-fpch-preprocess", "-x", "c++", *how, *(flag for flag in flags if not flag.startswith("-D")),
        "-isystem", INCLUDE, "-include", shim, "-include", defines, source,
    )  # fmt: skip
    if process.returncode:
        raise _explained(process.stderr, source)
    files = re.findall(r'^# \d+ "([^"<]+)"(?: [12])*$', process.stdout, re.MULTILINE)
    own = {f for f in files if Path(f).is_file() and not Path(f).samefile(source)}
    return process.stdout, sorted(
        f for f in own - {str(defines), str(shim)} if not Path(f).resolve().is_relative_to(EMULATOR.resolve())
    )


def _entries(names: list[str], kernels: list[str], traced: bool) -> str:
    """Return the C++ to append to the author's file for Python: the table of entries, the kernels'
    names, the module.
    """
    rows = "".join(f'\n# 1 "{name}"\n    ::emulator::entry<&{name}>({json.dumps(name)}),' for name in names)
    return f"""
namespace emulator {{ extern const Module this_module = {{{int(traced)}, &anchor}}; }}
#pragma GCC visibility push(default)
extern "C" const char* emulator_cuda_kernels() {{ return "{" ".join(kernels)}"; }}
extern "C" const void* emulator_cuda_module() {{ return &::emulator::this_module; }}
extern "C" const ::emulator::Entry* emulator_cuda_entries() {{
    static const ::emulator::Entry entries[] = {{{rows}
    {{nullptr, nullptr, 0, nullptr}}}};
    return entries;
}}
#pragma GCC visibility pop
"""


def _compile(text: str, how: tuple[str, ...], names: list[str], source: Path, traced: bool, to: Path) -> None:
    file, obj = to.with_suffix(".ii"), to.with_suffix(".o")
    file.write_text(text, encoding="utf-8")
    process = run(compiler()[0], "-fpreprocessed", "-x", "c++", *how, "-c", file, "-o", obj)
    if process.returncode:
        raise _explained(process.stderr, source, names)
    if traced:
        renamed = [f"--redefine-sym={name}=emulator_{name}" for name in NOT_ANNOUNCED]
        process = run("objcopy", *renamed, obj)
        if process.returncode:
            raise CompileError(f"objcopy: {process.stderr}")
    process = run(compiler()[0], "-shared", obj, "-o", to, "-Wl,-z,now")
    if process.returncode:
        raise _explained(process.stderr, source, names)


def _explained(stderr: str, source: Path, names: Iterable[str] = ()) -> CompileError:
    """Return the exception for a message of g++: Refused, with the author's line, for something
    that is not covered; else CompileError.
    """
    if refusal := re.search(r"CUDA_SHIM_REFUSED:? ?([^\"\n]*)", stderr):
        own = re.findall(r"(?:In file included from|from|^)\s*([^:\n]+):(\d+)", stderr, re.MULTILINE)
        own = [(file, line) for file, line in own if str(INCLUDE) not in file]
        file, line = own[0] if own else (str(source), "0")
        reason = refusal[1].strip()
        return Refused(reason, file, int(line), by_nvcc=not reason.startswith(NOT_BY_NVCC))
    lines = [line for line in stderr.splitlines() if " error: " in line or "fatal error" in line]
    shown = lines[:5] or stderr.splitlines()[:8]
    hints = []
    for name in names:
        if any(line.startswith(f"{name}:1:") for line in lines):
            hints.append(
                f"{name!r} should be a C++ expression that names one function of {source.name}: "
                "a host function or a kernel, template arguments written out"
            )
    # This holds only for the first error: after another error, a name may be unknown because its
    # declaration did not compile.
    if unknown := re.search(r"'(\w+)' was not declared in this scope", shown[0] if shown else ""):
        hints.append(
            f"{unknown[1]}: neither {source.name} nor the shim for the CPU has it "
            "(docs/use/tracing-cuda.md lists what is covered)"
        )
    return CompileError("\n".join([f"{source} does not compile for the CPU:", *shown, *hints]))
