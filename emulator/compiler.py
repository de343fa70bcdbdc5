"""Finds g++ and runs it, for the runtime and for every kernel family that is compiled to C++."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

from flash_attest.emulator.build_cache import key_of
from flash_attest.emulator.errors import NoCompiler

# -fno-gnu-unique: two libraries made of one file (plain and traced) must not share a variable.
# -fstack-clash-protection: if local memory is too large, the access to the guard page below the
# stack faults.
# -U_FORTIFY_SOURCE: Ubuntu's g++ defines it, and then longjmp to the stack of another fiber aborts.
COMMON = (
    "-std=c++17", "-fPIC", "-w", "-fno-strict-aliasing", "-fno-gnu-unique", "-ffp-contract=off", "-fstack-clash-protection",
    "-U_FORTIFY_SOURCE",
)  # fmt: skip


@functools.cache
def compiler() -> tuple[str, str]:
    """Return (path of g++, its version). Raises NoCompiler."""
    named = os.environ.get("CXX")
    gxx = shutil.which(named or "g++")
    if gxx is None and not named:
        raise NoCompiler("no g++ found: install it (apt install g++), or name one in CXX; kernels on the CPU need it")
    if wrong := "is not a program" if gxx is None else _not_gxx(gxx):
        given = f"CXX={named!r}" if named else gxx
        raise NoCompiler(f"{given} {wrong}: CXX should be the path of one g++, or not set; kernels on the CPU need it")
    return gxx, run(gxx, "--version").stdout.splitlines()[0]


def no_compiler() -> str:
    """Return why kernels cannot be compiled here; "" if they can be."""
    try:
        compiler()
    except NoCompiler as error:
        return str(error)
    return ""


def run(*command: str | Path) -> subprocess.CompletedProcess:
    """Run a tool and capture its output. The locale is ASCII English, because messages of g++ are
    parsed.
    """
    environment = os.environ | {"LC_ALL": "C"}
    return subprocess.run(
        [str(part) for part in command], capture_output=True, encoding="utf-8", errors="replace", env=environment
    )


def compiler_key(*parts: str | bytes) -> str:
    """Return the key of these parts and the compiler's version."""
    return key_of(compiler()[1], *parts)


def _not_gxx(path: str) -> str:
    """Return why a program is not g++; "" if it is. gcc also compiles C++, but links without the
    C++ library.
    """
    try:
        version, plan = run(path, "--version"), run(path, "-###", "-shared", "-x", "c++", os.devnull)
    except OSError as error:
        return f"cannot be run ({error.strerror})"
    if version.returncode or not version.stdout.strip():
        return f"does not print its --version (exit status {version.returncode})"
    is_gxx = "cc1plus" in plan.stderr and "-lstdc++" in plan.stderr
    return "" if is_gxx else f"is not g++, but {version.stdout.splitlines()[0]!r}"
