"""Compiles the runtime and the authors' files with g++: each once, by content, into the user's cache (cache.py)."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from emulator.build_cache import built, cache_folder, key_of
from emulator.cuda.source import rewrite
from emulator.errors import CompileError, NoCompiler, Refused

HERE = Path(__file__).parent
INCLUDE, RUNTIME = HERE / "include", HERE.parent / "runtime"
# -fno-gnu-unique, HIDDEN: two libraries made of one file (plain and traced) must not share a variable.
# -fstack-clash-protection: local memory that is too large meets the guard below its stack, and not another thread's stack.
COMMON = (
    "-std=c++17",
    "-fPIC",
    "-w",
    "-fno-strict-aliasing",
    "-fno-gnu-unique",
    "-ffp-contract=off",
    "-fstack-clash-protection",
)
HIDDEN = ("-fvisibility=hidden",)
PLAIN = ("-O2", "-g1")
# -fno-optimize-sibling-calls, -fno-crossjumping: an access keeps a line of its own.
# -fno-tree-loop-distribute-patterns: a loop stays one, and is no call of memset.
# -fno-tree-vectorize: accesses stay as wide as they were written.
# -fno-builtin-memcpy and kin: they stay calls, see NOT_ANNOUNCED.
TRACED = (
    "-g", "-fsanitize=thread,alignment", "--param", "tsan-instrument-func-entry-exit=0", "-fno-optimize-sibling-calls",
    "-fno-crossjumping", "-fno-tree-loop-distribute-patterns", "-fno-tree-vectorize", "-fno-ipa-icf",
    "-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset",
)  # fmt: skip
LEVEL = "-O1"  # of the traced build, unless asked otherwise
LARGE = 40_000  # bytes of a file with its headers: g++ takes 20 s for the 50,000 of FlashAttention-2, and that is said
NOT_ANNOUNCED = ("memcpy", "memmove", "memset")  # by the compiler: calls of these go to hooks.cpp


@functools.cache
def compiler() -> tuple[str, str]:
    """(g++, its version). Raises NoCompiler."""
    named = os.environ.get("CXX")
    gxx = shutil.which(named or "g++")
    if gxx is None and not named:
        raise NoCompiler(
            "no g++ found: install it (apt install g++), or name one in CXX; CUDA files run on the CPU need it"
        )
    if wrong := "is no program" if gxx is None else _no_gxx(gxx):
        given = f"CXX={named!r}" if named else gxx
        raise NoCompiler(
            f"{given} {wrong}: CXX should be the path of one g++, or not set; CUDA files run on the CPU need it"
        )
    return gxx, _run(gxx, "--version").stdout.splitlines()[0]


def _no_gxx(path: str) -> str:
    """What tells a program from a g++, in words; "" if it is one. gcc takes C++ too, but links without its library."""
    try:
        version, plan = _run(path, "--version"), _run(path, "-###", "-shared", "-x", "c++", os.devnull)
    except OSError as error:
        return f"cannot be run ({error.strerror})"
    if version.returncode or not version.stdout.strip():
        return f"does not say its --version (exit status {version.returncode})"
    is_one = "cc1plus" in plan.stderr and "-lstdc++" in plan.stderr
    return "" if is_one else f"is no g++, but {version.stdout.splitlines()[0]!r}"


def no_compiler() -> str:
    """Why CUDA files cannot be compiled here, in words; "" if they can."""
    try:
        compiler()
    except NoCompiler as error:
        return str(error)
    return ""


@functools.cache
def runtime() -> ctypes.CDLL:
    """The runtime's library, loaded so that the compiled files find it."""
    sources = sorted([*RUNTIME.glob("*"), *(INCLUDE / "shim").glob("*")])  # it shares a few headers with the shim
    path = built(_key("runtime", *COMMON, *(p.read_bytes() for p in sources)), _build_runtime)
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def library(source: Path, names: Iterable[str], flags: tuple[str, ...], traced: bool, level: str = LEVEL) -> Path:
    """A .cu compiled for the CPU, with an entry for each of `names`.

    Raises NoCompiler, CompileError (g++'s words), Refused (what is not covered, with the line).
    """
    names = list(names)
    how = (*(TRACED if traced else PLAIN), *((level,) if traced else ()), *COMMON, *HIDDEN)
    key = _key(str(source), source.read_bytes(), *names, *flags, *how, _shim())
    folder = cache_folder()
    known = folder / f"{key}.headers.json"

    def with_headers(headers: list[str]) -> str:
        return _key(key, *(Path(p).read_bytes() for p in headers))

    def make(to: Path) -> None:
        if sum(Path(p).stat().st_size for p in [source, *headers]) > LARGE:
            print(
                f"compiling {source.name} for the CPU{', traced' * traced}, once: about 20 s",
                file=sys.stderr,
                flush=True,
            )
        _compile(text, how, names, source, traced, to)

    headers = _read(known)
    if headers is not None and all(Path(p).exists() for p in headers):
        final = folder / f"{with_headers(headers)}.so"
        if final.exists():
            return final
    with FileLock(folder / f"{key}.lock"):
        preprocessed, headers = _preprocessed(source, flags)
        text, kernels = rewrite(preprocessed, str(INCLUDE))
        text += _entries(names, kernels, traced)
        _write(known, json.dumps(headers))
        return built(with_headers(headers), make)


def _key(*parts: str | bytes) -> str:
    return key_of(compiler()[1], *parts)


@functools.cache
def _shim() -> str:
    """What the shim and this file are: a change of either compiles everything anew."""
    files = sorted(p for p in INCLUDE.rglob("*") if p.is_file())
    return _key(*(p.read_bytes() for p in [*files, Path(__file__), HERE / "source.py"]))


def _read(path: Path) -> list[str] | None:
    """A list that was written before; None if it was not, or is not whole."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _write(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


def _run(*command: str | Path) -> subprocess.CompletedProcess:
    plain = os.environ | {"LC_ALL": "C"}  # messages in ASCII English, as they are read below
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env=plain)


def _build_runtime(to: Path) -> None:
    sources = sorted(RUNTIME.glob("*.cpp"))
    objects = [to.with_name(f"{source.stem}.o") for source in sources]
    with ThreadPoolExecutor() as pool:
        made = list(
            pool.map(lambda s, o: _run(compiler()[0], "-O2", "-g1", *COMMON, "-c", s, "-o", o), sources, objects)
        )
    made.append(_run(compiler()[0], "-shared", *objects, "-o", to, "-lrt", "-pthread"))
    if wrong := [m.stderr for m in made if m.returncode]:
        raise CompileError(f"the runtime of emulator/cuda does not compile with {compiler()[1]}:\n{wrong[0]}")


def _preprocessed(source: Path, flags: tuple[str, ...]) -> tuple[str, list[str]]:
    """The .cu with all includes and macros expanded, and which of the author's headers went in."""
    # Macros of the author are defined behind the shim, so that one called T does it no harm.
    defines = cache_folder() / f"{_key(*flags)}.defines.h"
    lines = [flag.removeprefix("-D").partition("=") for flag in flags if flag.startswith("-D")]
    _write(defines, "".join(f"#define {name} {value}\n" for name, _, value in lines))
    made = _run(
        compiler()[0], "-E", "-x", "c++", *COMMON, *(flag for flag in flags if not flag.startswith("-D")),
        "-isystem", INCLUDE, "-include", INCLUDE / "cuda_shim.h", "-include", defines, source,
    )  # fmt: skip
    if made.returncode:
        raise _explained(made.stderr, source)
    files = re.findall(r'^# \d+ "([^"<]+)"(?: [12])*$', made.stdout, re.MULTILINE)
    own = {f for f in files if Path(f).is_file() and not Path(f).samefile(source)}
    return made.stdout, sorted(own - _shim_files() - {str(defines)})


def _shim_files() -> set[str]:
    return {str(p) for p in INCLUDE.rglob("*")}


def _entries(names: list[str], kernels: list[str], traced: bool) -> str:
    """What Python reads, behind the author's last line: the table of entries, the names of the kernels, the module."""
    rows = "".join(f'\n# 1 "{name}"\n    ::cuda_trace::entry<&{name}>({json.dumps(name)}),' for name in names)
    return f"""
namespace cuda_trace {{ extern const Module this_module = {{{int(traced)}, &anchor}}; }}
#pragma GCC visibility push(default)
extern "C" const char* cuda_trace_kernels() {{ return "{" ".join(kernels)}"; }}
extern "C" const void* cuda_trace_module() {{ return &::cuda_trace::this_module; }}
extern "C" const ::cuda_trace::Entry* cuda_trace_entries() {{
    static const ::cuda_trace::Entry entries[] = {{{rows}
    {{nullptr, nullptr, 0, nullptr}}}};
    return entries;
}}
#pragma GCC visibility pop
"""


def _compile(text: str, how: tuple[str, ...], names: list[str], source: Path, traced: bool, to: Path) -> None:
    file, obj = to.with_suffix(".ii"), to.with_suffix(".o")
    file.write_text(text)
    made = _run(compiler()[0], "-fpreprocessed", "-x", "c++", *how, "-c", file, "-o", obj)
    if made.returncode:
        raise _explained(made.stderr, source, names)
    if traced:
        renamed = [f"--redefine-sym={name}=cuda_trace_{name}" for name in NOT_ANNOUNCED]
        made = _run("objcopy", *renamed, obj)
        if made.returncode:
            raise CompileError(f"objcopy: {made.stderr}")
    made = _run(compiler()[0], "-shared", obj, "-o", to, "-Wl,-z,now")
    if made.returncode:
        raise _explained(made.stderr, source, names)


def _explained(stderr: str, source: Path, names: Iterable[str] = ()) -> CompileError:
    """g++'s message as ours: what is not covered as Refused, with the line of the author's file that asks for it."""
    if found := re.search(r"CUDA_TRACE_REFUSED:? ?([^\"\n]*)", stderr):
        own = re.findall(r"(?:In file included from|from|^)\s*([^:\n]+):(\d+)", stderr, re.MULTILINE)
        own = [(file, line) for file, line in own if str(INCLUDE) not in file]
        file, line = own[0] if own else (str(source), "0")
        return Refused(found[1].strip(), file, int(line))
    lines = [line for line in stderr.splitlines() if " error: " in line or "fatal error" in line]
    shown = lines[:5] or stderr.splitlines()[:8]
    hints = []
    for name in names:
        if any(line.startswith(f"{name}:1:") for line in lines):
            hints.append(
                f"{name!r} should be a C++ expression that names one function of {source.name}: "
                "a host function or a kernel, template arguments written out"
            )
    # Only of the first error: behind another, a name may be unknown for want of the line that did not compile.
    if unknown := re.search(r"'(\w+)' was not declared in this scope", shown[0] if shown else ""):
        hints.append(
            f"{unknown[1]}: neither {source.name} nor the shim for the CPU has it "
            "(docs/tracing-cuda.md lists what is covered)"
        )
    return CompileError("\n".join([f"{source} does not compile for the CPU:", *shown, *hints]))
