"""The PyTorch operators for GPUs, built by nvcc.

Each algorithm has one library, made from fa?.cu and fa?_binding.cpp.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from flash_attest.emulator.build_cache import built, key_of

FOLDER = Path(__file__).parent
PATTERNS = ("*.cu", "*.cuh", "*.h", "*_binding.cpp")
CXX_FLAGS = ("-O3", "-std=c++17", "-DUSE_CUDA")
# -lineinfo gives line numbers to compute-sanitizer, and changes no instruction. --split-compile=0
# runs ptxas on all cores, which halves the time on four cores.
NVCC_FLAGS = ("-O3", "-std=c++17", "-lineinfo", "--split-compile=0")
# The environment variables that PyTorch's build or nvcc reads.
VARIABLES = ("CXX", "PYTORCH_NVCC", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")
ERRORS = 5  # how many lines of the compiler's errors are shown


def nvcc() -> str | None:
    """Return the path of nvcc, or None.

    The search is the same as PyTorch's: CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return shutil.which("nvcc", path=str(Path(home) / "bin"))
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def toolkit(nvcc: str) -> str:
    """Return the folder of an nvcc's CUDA toolkit. The nvcc may be a link or a script elsewhere."""
    homes = [path.parent.parent for path in (Path(nvcc), Path(nvcc).resolve())]
    for home in homes:
        if (home / "include" / "cuda_runtime.h").exists():
            return str(home)
    plan = subprocess.run(
        [nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, encoding="utf-8", errors="replace"
    ).stderr
    here = re.search(r"^#\$ _HERE_=(.+)$", plan, re.MULTILINE)
    return str(Path(here[1]).parent if here else homes[0])


@functools.cache
def load(name: str):
    """Return torch.ops.flash_attest_cuda_<name> for "fa1" or "fa2", built unless it is cached.

    One process builds, and others wait for it (emulator/build_cache.py). Raises RuntimeError if
    nvcc or ninja is missing, or, with the compiler's first errors, if a source does not compile.
    """
    if nvcc() is None:
        raise RuntimeError(
            f"no nvcc found, which compiles {name}.cu for CUDA tensors: install the CUDA toolkit, and name its folder in "
            "CUDA_HOME if nvcc is not in PATH"
        )
    torch.ops.load_library(built(key(name), lambda to: build(name, to)))
    return getattr(torch.ops, f"flash_attest_cuda_{name}")


def key(name: str) -> str:
    """Return the cache key of the library, which changes with sources, tools, flags and GPUs."""
    sources = sorted(path for pattern in PATTERNS for path in FOLDER.glob(pattern))
    contents = [part for path in sources for part in (path.name, path.read_bytes())]
    tools = (torch.__version__, str(torch.version.cuda), _nvcc_version(nvcc()))
    settings = [f"{variable}={os.environ.get(variable)}" for variable in VARIABLES]
    return key_of(name, *tools, *settings, architectures(), *CXX_FLAGS, *NVCC_FLAGS, *contents)


def architectures() -> str:
    """Return the compute capabilities to build for, for example "8.0;9.0".

    They are TORCH_CUDA_ARCH_LIST if it is set, otherwise those of the visible GPUs.
    """
    if chosen := os.environ.get("TORCH_CUDA_ARCH_LIST"):
        return chosen
    capabilities = {torch.cuda.get_device_capability(n) for n in range(torch.cuda.device_count())}
    return ";".join(f"{major}.{minor}" for major, minor in sorted(capabilities))


def build(name: str, to: Path) -> None:
    """Compile and link the library of an algorithm into the file `to`, whose folder is new.

    As the folder is new, no other process has locked it. Raises RuntimeError with the compiler's
    first errors and what to do.
    """
    from torch.utils import cpp_extension  # importing it takes as long as all other imports together

    cpp_extension.CUDA_HOME = toolkit(nvcc())  # PyTorch set this at import, perhaps to the folder of a script
    with _interpreters_folder_in_path():
        try:
            cpp_extension.load(
                f"flash_attest_cuda_{name}",
                [str(FOLDER / f"{name}.cu"), str(FOLDER / f"{name}_binding.cpp")],
                extra_cflags=list(CXX_FLAGS),
                extra_cuda_cflags=list(NVCC_FLAGS),
                build_directory=str(to.parent),
                is_python_module=False,
            )
        except (RuntimeError, OSError, ValueError) as error:  # from the build, CUDA_HOME, or TORCH_CUDA_ARCH_LIST
            raise RuntimeError(_explained(name, str(error))) from error
    # PyTorch has loaded the library under its first name. The loader identifies a file by its
    # inode, so it will not load the renamed file again.
    (library,) = to.parent.glob("*.so")
    os.replace(library, to)


def _explained(name: str, output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() and not line.lower().startswith("error building")]
    shown = (errors or lines)[:ERRORS]
    hint = (
        f"Tried with {nvcc()} for {architectures() or 'no GPU'}, beside PyTorch {torch.__version__}. Its CUDA should "
        "support this GPU and this g++: name another toolkit in CUDA_HOME, other GPUs in TORCH_CUDA_ARCH_LIST, "
        "another g++ in CXX. ninja must be installed (pip install 'flash-attest[cuda]')."
    )
    return "\n".join([f"{name}.cu and {name}_binding.cpp could not be built for CUDA tensors:", *shown, hint])


@contextmanager
def _interpreters_folder_in_path() -> Iterator[None]:
    """Append the folder of this Python, in which pip installs ninja, to PATH."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([before, str(Path(sys.executable).parent)])
    try:
        yield
    finally:
        os.environ["PATH"] = before


@functools.cache
def _nvcc_version(path: str) -> str:
    return subprocess.run(
        [path, "--version"], capture_output=True, encoding="utf-8", errors="replace", check=True
    ).stdout
