"""Compiles a .cu file with nvcc, once for each content: its kernels to PTX, its host code and
emulator/cuda/cudart to a library.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from flash_attest.emulator.build_cache import built, cache_folder, counted, key_of, read_list, write
from flash_attest.emulator.compiler import COMMON, compiler, compiler_key, run
from flash_attest.emulator.errors import CompileError

HERE = Path(__file__).resolve().parent
CUDART = HERE / "cudart"
ARCHITECTURE = "compute_80"  # the newest one whose kernels use no wgmma, TMA or clusters
# -lineinfo writes .loc lines. -c, with PTX as the only output, keeps ptxas from running.
FLAGS = (
    "-std=c++17", "-c", "-lineinfo", f"-gencode=arch={ARCHITECTURE},code={ARCHITECTURE}", "-cudart=none", "-w",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-fno-gnu-unique,-O1,-g1",
)  # fmt: skip
NONE = "nvcc, which compiles it to PTX that runs here, was not found: install the CUDA toolkit, or name its nvcc in CUDACXX"


def nvcc() -> str | None:
    """Find nvcc in CUDACXX, CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda, or a wheel of NVIDIA's;
    None if not found.
    """
    if named := os.environ.get("CUDACXX"):
        return shutil.which(named)
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [Path(home) / "bin"] if home else []
    wheels = [path for root in sys.path for path in sorted(Path(root).glob("nvidia/cu*/bin"))]
    for place in [*folders, None, Path("/usr/local/cuda/bin"), *wheels]:
        if path := shutil.which("nvcc", path=None if place is None else str(place)):
            return path
    return None


@functools.cache
def _version(path: str) -> str:
    process = run(path, "--version")
    if process.returncode:
        raise CompileError(f"{path} --version fails: {process.stderr.strip()[:500]}")
    return process.stdout


@functools.cache
def include_folder(path: str) -> Path:
    """Return the folder of the cuda_runtime.h that this nvcc uses. nvcc may be a script, so it is
    run to find out.
    """
    plan = run(path, "--dryrun", "-x", "cu", os.devnull).stderr
    for folder in re.findall(r'-I\s*"?([^"\s]+)"?', plan):
        if (Path(folder) / "cuda_runtime.h").is_file():
            return Path(folder)
    raise CompileError(
        f"{path} has no cuda_runtime.h: install the toolkit's headers (nvidia-cuda-runtime, nvidia-cuda-crt)"
    )


def library(path: str, source: Path, names: Iterable[str], flags: tuple[str, ...]) -> Path:
    """Return the library that the nvcc at `path` makes of a .cu file, with an entry for each of
    `names` and the PTX inside.

    Raises CompileError (the message of nvcc), NoCompiler.
    """
    names = list(names)
    key = compiler_key(_own(path), str(source), source.read_bytes(), *names, *flags, *FLAGS)
    known = cache_folder() / f"{key}.headers.json"
    headers = read_list(known)
    if headers is None or not all(Path(p).exists() for p in headers):
        headers = _headers(path, source, flags)
        write(known, json.dumps(headers))
    return built(
        key_of(key, *(Path(p).read_bytes() for p in headers)), lambda to: _compile(path, source, names, flags, to)
    )


def _own(path: str) -> str:
    """Return a key of what is the same for every source."""
    files = [*sorted(CUDART.iterdir()), HERE / "include/shim/entry.h", Path(__file__)]
    return compiler_key(_version(path), *(file.read_bytes() for file in files))


def _cudart(path: str) -> Path:
    """Return the object of emulator/cuda/cudart, which is part of every library."""

    def make(to: Path) -> None:
        process = run(
            compiler()[0], *COMMON, "-O1", "-fvisibility=hidden", f"-I{include_folder(path)}", "-r", "-nostdlib",
            *sorted(CUDART.glob("*.cpp")), "-o", to,
        )  # fmt: skip
        if process.returncode:
            raise CompileError(f"{CUDART} does not compile with {compiler()[1]}:\n{process.stderr[:2000]}")

    return built(compiler_key(_own(path), str(include_folder(path)), *COMMON), make, ".o")


def _headers(path: str, source: Path, flags: tuple[str, ...]) -> list[str]:
    """Return the author's headers that the .cu includes."""
    with counted():
        process = run(path, "-M", "-std=c++17", f"-ccbin={compiler()[0]}", *flags, source)
    if process.returncode:
        raise _explained(process.stdout + process.stderr, source, ())
    toolkit = include_folder(path).resolve().parent
    words = {Path(p) for p in process.stdout.replace("\\\n", " ").partition(" : ")[2].split()} - {source}
    return sorted(str(p) for p in words if not p.is_relative_to("/usr/") and not p.resolve().is_relative_to(toolkit))


def _compile(path: str, source: Path, names: list[str], flags: tuple[str, ...], to: Path) -> None:
    folder = to.parent
    whole, obj = folder / "whole.cu", folder / "whole.o"
    text = f'#include "{CUDART / "entry.h"}"\n#line 1 "{source}"\n#include "{source}"\n{_entries(names)}'
    whole.write_text(text, encoding="utf-8", errors="surrogateescape")
    process = run(
        path, *FLAGS, f"-ccbin={compiler()[0]}", *flags, "--keep", f"--keep-dir={folder}", whole, "-o", obj,
    )  # fmt: skip
    if process.returncode:
        raise _explained(process.stdout + process.stderr, source, names)
    (folder / "ptx.S").write_text(
        '.section .rodata\n.global emulator_cuda_ptx\nemulator_cuda_ptx: .incbin "whole.ptx"\n.byte 0\n'
        '.section .note.GNU-stack,"",@progbits\n'
    )
    process = run(compiler()[0], f"-Wa,-I{folder}", "-shared", obj, _cudart(path), folder / "ptx.S", "-o", to)
    if process.returncode:
        raise CompileError(f"{source} does not link:\n{process.stderr[:2000]}")
    unknown = re.findall(r"\bU (_*cuda\w+|cu[A-Z]\w+|cublas\w+|curand\w+|nvtx\w+)", run("nm", "-D", to).stdout)
    if unknown:
        raise CompileError(f"{source}: its host code calls {', '.join(unknown)}, which the emulator does not have")


def _entries(names: list[str]) -> str:
    """Return the C++ to append to the author's file for Python: the table of entries."""
    rows = "".join(f'\n#line 1 "{name}"\n    ::emulator::entry<&{name}>({json.dumps(name)}),' for name in names)
    return f"""
#line 1 "entries"
#pragma GCC visibility push(default)
extern "C" const ::emulator::Entry* emulator_cuda_entries() {{
    static const ::emulator::Entry entries[] = {{{rows}
    {{nullptr, nullptr, 0, nullptr}}}};
    return entries;
}}
extern "C" int emulator_cuda_is_kernel(int n) {{
    static const void* const functions[] = {{{", ".join(f"(const void*)&{name}" for name in names)}}};
    return ::emulator::is_kernel(functions[n]);
}}
#pragma GCC visibility pop
"""


def _explained(text: str, source: Path, names: Iterable[str]) -> CompileError:
    """Return the exception for nvcc's output."""
    lines = [line for line in text.splitlines() if "error" in line]
    hints = [
        f"{name!r} should be a C++ expression that names one function of {source.name}: a host function or a kernel, "
        "template arguments written out"
        for name in names
        if any(line.startswith((f"{name}(1)", f"{name}:1:")) for line in lines)
    ]
    return CompileError("\n".join([f"nvcc does not compile {source}:", *(lines[:5] or text.splitlines()[:8]), *hints]))
