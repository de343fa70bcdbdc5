"""Looks up the machine code of kernels, to see which of them use the asynchronous proxy.

TMA copies, mbarriers and wgmma run beside the threads that issue them. racecheck does not know the
order that they give to accesses (docs/why/races.md#sanitizer). They show in the machine code alone,
whatever the kernel was written in.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from flash_attest.races.sanitizer.tools import TOOLKITS

CUOBJDUMP = "cuobjdump"
CUBINS = "FLASH_ATTEST_CUBINS"  # an environment variable: a folder with .cubin files of kernels compiled in memory
NONE = f"no {CUOBJDUMP} found, which shows machine code: it comes with the CUDA toolkit and with Triton"
LIMIT = 60.0  # seconds for all kernels; a library of 1 GB takes most of it
LONGEST = 100_000  # characters of the names that one command gets; of more variants, some are left out
HEAD = b"\x7fELF"
# TMA, bulk copies, mbarriers and copies that arrive at them; matrix products of sm_90 and sm_100
ASYNCHRONOUS = re.compile(r"UTMA(?:LDG|STG|REDG)|UBLK(?:CP|RED)|SYNCS|ARRIVES|[A-Z]GMMA|UTC[A-Z]*MMA|UTCCP|UTCBAR")
FUNCTION = re.compile(r"Function : (\S+)")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*(?:(?<=\bBAR)\.ARV)?)")
ARRIVAL = "BAR.ARV"  # at a named barrier, without waiting
ENTRY = re.compile(r"STT_FUNC\s.*\sSTO_ENTRY\s+(\S+)")
OF_TRITON = "CompiledKernel"  # the class of Triton's objects for a compiled kernel
# Python objects that keep machine code: the name of the class, and the attributes that may have it
KEEPERS = {
    OF_TRITON: ("kernel",),
    "CUDACodeLibrary": ("_cubin_cache",),  # Numba
    "StaticallyLaunchedCudaKernel": ("cubin_raw", "cubin_path"),  # torch.compile
}
OF_TORCH = re.escape(os.path.dirname(torch.__file__))
LEFT_OUT = re.compile(rf"{OF_TORCH}/|.*/site-packages/(?:nvidia|triton)/|/(?:usr/)?lib(?:64)?/")


def find() -> str | None:
    """Return the path of cuobjdump, from a toolkit or else from Triton. None if there is none."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [Path(home) / "bin" for home in homes]
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += [home / "bin" for home in sorted(TOOLKITS.glob("cuda*"), reverse=True)]
    triton = importlib.util.find_spec("triton")
    folders += [Path(triton.origin).parent / "backends" / "nvidia" / "bin"] if triton and triton.origin else []
    return next((path for folder in folders if (path := shutil.which(CUOBJDUMP, path=str(folder)))), None)


def images(folder: Path) -> Iterator[Path]:
    """Yield the files that may have the kernels of this process.

    They are the kernels that Triton, Numba and torch.compile keep in memory, written to `folder`;
    .cubin files that the user names; and the libraries that were loaded, except PyTorch's and
    NVIDIA's.
    """
    codes = {code for code in _kept() if code.startswith(HEAD)}
    for n, code in enumerate(sorted(codes)):
        (path := folder / f"{n}.cubin").write_bytes(code)
        yield path
    if named := os.environ.get(CUBINS):
        yield from sorted(Path(named).rglob("*.cubin"))
    for path in _loaded():
        if not LEFT_OUT.match(str(path)) and _has_kernels(path):
            yield path


@dataclass
class MachineCode:
    """The machine code of this process's kernels, as a context. Everything that was read is kept.

    capability: of the GPU, such as (9, 0). Code for another one is not looked at.
    """

    capability: tuple[int, int]
    program: str | None = field(default_factory=find)
    limit: float = LIMIT

    def __post_init__(self):
        self._stop = time.monotonic() + self.limit
        self._entries: dict[Path, dict[str, list[str]]] | None = None  # file -> architecture -> functions
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self) -> MachineCode:
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def asynchronous(self, kernel: str) -> list[str]:
        """Return the instructions of the asynchronous proxy that a kernel uses, such as SYNCS.

        kernel: the part of its name that own_kernels returns. Raises LookupError, with the reason,
        if the code of no such kernel was read.
        """
        if self.program is None:
            raise LookupError(NONE)
        was_found = False
        try:
            for path, entries in self._read().items():
                for architecture, names in entries.items():
                    if variants := [name for name in names if is_variant(name, kernel)]:
                        was_found = True
                        if used := self._used(path, architecture, variants):
                            return used
        except TimeoutError:
            raise LookupError(f"{CUOBJDUMP} did not read its machine code within {self.limit:.0f} s") from None
        if not was_found:
            raise LookupError(
                "its machine code was not found: the kernels of Triton, Numba and loaded libraries were looked at, "
                f"and .cubin files in the folder {CUBINS}"
            )
        return []

    def _read(self) -> dict[Path, dict[str, list[str]]]:
        """Return the functions for this GPU in each file."""
        if self._entries is None:
            self._entries = {path: self._entries_in(path) for path in images(Path(self._folder.name))}
        return self._entries

    def _entries_in(self, path: Path) -> dict[str, list[str]]:
        """Return the functions in a file.

        Loaded libraries are read once, as that takes a second, and every case with a new kernel
        asks.
        """
        if path.suffix == ".cubin":
            return self._entries_of(path)
        if (key := (path, self.capability)) not in _libraries:
            _libraries[key] = self._entries_of(path)
        return _libraries[key]

    def _entries_of(self, path: Path) -> dict[str, list[str]]:
        listed = (
            [""]
            if path.suffix == ".cubin"
            else sorted(set(re.findall(r"\.(sm_\w+)\.cubin", self._text("-lelf", path))))
        )
        mine = [each for each in listed if not each or re.sub(r"\D", "", each) == "{}{}".format(*self.capability)]
        return {each: ENTRY.findall(self._text("-symbols", *_architecture(each), path)) for each in mine}

    def _text(self, *arguments: object) -> str:
        return "".join(self._lines(*arguments))

    def _used(self, path: Path, architecture: str, names: list[str]) -> list[str]:
        """Return the instructions of the first function that uses the asynchronous proxy, or []."""
        names = names[:: 1 + sum(map(len, names)) // LONGEST]
        opcodes: set[str] = set()
        for line in self._lines("-sass", *_architecture(architecture), "-fun", ",".join(names), path):
            if match := INSTRUCTION.search(line):
                opcodes.add(match[1])
            elif FUNCTION.search(line):
                if used := asynchronous_of(opcodes):
                    return used
                opcodes.clear()
        return asynchronous_of(opcodes)

    def _lines(self, *arguments: object) -> Iterator[str]:
        """Yield the lines that cuobjdump prints: none if it cannot read the file.

        Raises TimeoutError. The program is ended when the caller needs no more lines.
        """
        command = [self.program, *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, errors="replace") as process:
            overdue = threading.Timer(max(0.0, self._stop - time.monotonic()), process.kill)
            overdue.start()
            try:
                yield from process.stdout
                if time.monotonic() > self._stop:
                    raise TimeoutError
            finally:
                overdue.cancel()
                process.kill()


_libraries: dict[tuple[Path, tuple[int, int]], dict[str, list[str]]] = {}  # what this process has read


def asynchronous_of(opcodes: Iterable[str]) -> list[str]:
    """Return the opcodes of the asynchronous proxy among these, and with one, also ARRIVAL."""
    opcodes = {*opcodes}
    used = {*filter(ASYNCHRONOUS.fullmatch, opcodes)}
    return sorted(used | (opcodes & {ARRIVAL}) if used else [])


def is_variant(symbol: str, kernel: str) -> bool:
    """Return whether a symbol is of a kernel, which own_kernels names, or of a variant of it."""
    mangled = rf"(?<!\d){len(kernel)}{re.escape(kernel)}"  # the length is no end of a longer number
    return kernel == symbol or (symbol.startswith("_Z") and re.search(mangled, symbol) is not None)


def _architecture(name: str) -> list[str]:
    return ["-arch", name] if name else []


def _kept() -> Iterator[bytes]:
    """Yield the machine code that Python objects keep."""
    for each in gc.get_objects():
        for attribute in KEEPERS.get(type(each).__name__, ()):
            value = getattr(each, attribute, None)
            for code in value.values() if isinstance(value, dict) else (value,):
                code = getattr(code, "code", code)  # of cuda.core's ObjectCode
                if isinstance(code, str) and code.endswith(".cubin") and Path(code).is_file():
                    code = Path(code).read_bytes()
                if isinstance(code, (bytes, bytearray)):
                    yield bytes(code)


def _loaded() -> list[Path]:
    """Return the libraries that this process has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    files = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return sorted(Path(file) for file in files if ".so" in Path(file).name and Path(file).is_file())


def _has_kernels(path: Path) -> bool:
    """Return whether a library has a section with machine code of a GPU."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 20)))  # names of sections stand near the end
        return b".nv_fatbin" in file.read()
