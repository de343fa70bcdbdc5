"""Makes what surrounds a kernel process: its variables, and folders for compiled files."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from flash_attest.emulator.build_cache import cache_folder
from flash_attest.emulator.errors import EmulatorError
from flash_attest.impls.contract.loading import file_of
from flash_attest.properties.machine.gpus import visible_gpus

# Variables that are passed on; the others may be secrets, or tell what is judged.
PASSED = (
    "CC", "CFLAGS", "CONDA_PREFIX", "CPATH", "CXX", "CXXFLAGS", "FLASH_ATTEST_EMULATED", "LANG", "LANGUAGE",
    "LD_LIBRARY_PATH", "LIBRARY_PATH", "PATH", "SYSTEMROOT", "TERM", "TZ",
)  # fmt: skip
PASSED_BY_PREFIX = (
    "CUBLAS_", "CUDA_", "CUDNN_", "GOMP_", "KMP_", "LC_", "MKL_", "NUMBA_", "NVIDIA_", "OMP_", "OPENBLAS_", "PTXAS",
    "PYTORCH_", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_",
)  # fmt: skip
MOST_CACHES = 32
EMULATED = re.compile(r"triton|numba|cuda", re.IGNORECASE)  # what a file that needs the emulator mentions


def libraries(argument: str) -> list[str]:
    """Return the emulator's libraries, compiled here if the file seems to need them.

    Otherwise the kernel process of each new file would compile them, which takes up to a minute.
    """
    file = file_of(argument)[0]
    text = file.read_text(errors="replace") if file.is_file() else ""
    if visible_gpus() or not EMULATED.search(text):
        return []
    from flash_attest.emulator.libraries import compiled

    return [*map(str, compiled())]


def own_cache(argument: str, fallback: Path) -> Path:
    """Return the folder to which the kernels of a file may write what they compile.

    Another file has another folder, as it would load what is there. Of old folders, a few stay.
    """
    file = file_of(argument)[0]
    try:
        base = cache_folder() / "untrusted"
        content = file.read_bytes() if file.is_file() else b""
        folder = base / hashlib.sha256(os.path.abspath(file).encode() + b"\0" + content).hexdigest()[:32]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(folder)
        old = sorted((each for each in base.iterdir() if each.is_dir()), key=lambda each: -each.stat().st_mtime)
        for each in old[MOST_CACHES:]:
            shutil.rmtree(each, ignore_errors=True)
        return folder
    except (EmulatorError, OSError):
        return fallback


def variables(cache: Path, folder: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a kernel process, with these folders to write to."""
    passed = {name: value for name, value in environment.items() if name in PASSED or name.startswith(PASSED_BY_PREFIX)}
    named = {
        "FLASH_ATTEST_CACHE": cache, "XDG_CACHE_HOME": cache, "TRITON_CACHE_DIR": cache / "triton",
        "TORCHINDUCTOR_CACHE_DIR": cache / "inductor", "TORCH_EXTENSIONS_DIR": cache / "extensions",
        "NUMBA_CACHE_DIR": cache / "numba", "CUDA_CACHE_PATH": cache / "nv", "TMPDIR": folder, "HOME": folder,
    }  # fmt: skip
    quiet = {"KINETO_LOG_LEVEL": "99"}  # silences the profiler that observes operators
    return passed | quiet | {name: str(path) for name, path in named.items()}
