"""flash-attest doctor: shows what runs here, what each missing part costs, and how to get it."""

from __future__ import annotations

import importlib
import json
import mmap
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

from flash_attest import __version__
from flash_attest.arguments import Parser
from flash_attest.packages import EXTRAS, NEEDED, install, is_there, lacking
from flash_attest.texts import gib

NAME = "doctor"
SUMMARY = "what runs here, and what each missing thing costs"
EPILOG = """\
Exit status: 0 implementations can be judged on the CPU here, whatever else is missing; 1 something that every run needs is
broken.
"""
OLDEST = (3, 10)  # version of Python
SPARSE = 1 << 37  # bytes of address space that the largest law maps on a CPU
OK, MISSING, BROKEN = "ok", "missing", "broken"


@dataclass
class Line:
    """The state of one part.

    found: what is there, or that it is missing. lost: what cannot be judged without it. get: the
    command that installs it.
    """

    name: str
    state: str
    found: str
    lost: str = ""
    get: str = ""

    def __str__(self) -> str:
        text = f"{self.state:8} {self.name:18} {self.found}"
        if self.state == OK:
            return text
        return text + (f"; without it {self.lost}" if self.lost else "") + (f": {self.get}" if self.get else "")


def run(arguments: list[str]) -> int:
    """Print a line for each part. Returns the exit status."""
    parser = Parser(f"flash-attest {NAME}", "What runs here, what each missing thing costs, and how to get it.", EPILOG)
    parser.add_argument("--json", action="store_true", help="print JSON: a list of objects")
    options = parser.parse_args(arguments)
    parts = list(lines())
    if options.json:
        print(json.dumps([asdict(line) for line in parts], indent=1))
    else:
        print(*parts, sep="\n")
        broken = [line.name for line in parts if line.state == BROKEN]
        print(f"broken: {', '.join(broken)}" if broken else "Implementations can be judged here.")
    return int(any(line.state == BROKEN for line in parts))


def lines() -> Iterator[Line]:
    """Check one part after another, except parts that need a missing package."""
    yield Line("flash-attest", OK, __version__)
    yield python()
    yield packages()
    looks: list[Callable[[], Line]] = [cache, isolation, sandbox, sparse_memory, gxx, nvcc, ninja, triton, numba]
    if all(map(is_there, NEEDED)):
        yield torch()
        yield gpu()
        looks = [*looks, compute_sanitizer, cuda_bindings]
    for look in [*looks, *(lambda module=module: extra(module) for module in ("matplotlib", "ray"))]:
        try:
            yield look()
        except Exception as error:  # a library that is installed but cannot be loaded
            yield Line(look.__name__, MISSING, _words(error))


def python() -> Line:
    """Check the version of Python."""
    state = OK if sys.version_info >= OLDEST else BROKEN
    return Line(
        "Python",
        state,
        f"{platform.python_version()} on {platform.platform()}",
        "nothing runs",
        "install 3.10 or newer",
    )


def packages() -> Line:
    """Check the packages that every run needs."""
    if missing := [NEEDED[module] for module in NEEDED if not is_there(module)]:
        return Line("packages", BROKEN, f"no {', '.join(missing)}", "nothing runs", f"pip install {' '.join(missing)}")
    return Line("packages", OK, ", ".join(NEEDED.values()))


def torch() -> Line:
    """Check PyTorch, and let it multiply two matrices."""
    try:
        module = importlib.import_module("torch")
        (module.ones(2, 2) @ module.ones(2, 2)).sum().item()
    except Exception as error:
        return Line("PyTorch", BROKEN, _words(error), "nothing runs", "pip install torch")
    build = f"built for CUDA {module.version.cuda}" if module.version.cuda else "built for CPUs"
    return Line("PyTorch", OK, f"{module.__version__}, {build}")


def gpu() -> Line:
    """Check whether PyTorch sees a GPU, and if not, whether the driver lists one."""
    from flash_attest.properties.machine.gpus import has_gpu

    module = importlib.import_module("torch")
    lost = "what runs on CUDA only is not judged; Triton, Numba and CUDA C++ run on the CPU, in the emulator"
    if not module.cuda.is_available():
        gpus = _gpus()
        if not has_gpu() or not gpus:
            return Line("GPU", MISSING, "none", lost)
        why = (
            "is hidden by CUDA_VISIBLE_DEVICES"
            if os.environ.get("CUDA_VISIBLE_DEVICES") == ""
            else "PyTorch cannot use it"
        )
        cpu_build = "" if module.version.cuda else "install a build of PyTorch for CUDA (pytorch.org)"
        return Line("GPU", MISSING, f"{gpus[0]}: {why}", lost, cpu_build)
    return Line("GPU", OK, "; ".join(_gpus()) or module.cuda.get_device_name())


def _gpus() -> list[str]:
    """Return the name, memory and driver of each GPU that the driver lists."""
    if (program := shutil.which("nvidia-smi")) is None:
        return []
    fields = "--query-gpu=name,memory.total,driver_version"
    listing = subprocess.run(
        [program, fields, "--format=csv,noheader"], capture_output=True, encoding="utf-8", errors="replace", timeout=60
    )
    rows = [line.split(", ") for line in listing.stdout.splitlines()] if listing.returncode == 0 else []
    return [f"{name}, {memory}, driver {driver}" for name, memory, driver in rows]


def compute_sanitizer() -> Line:
    """Look for NVIDIA's compute-sanitizer, which is useful only on a GPU."""
    from flash_attest.races.sanitizer.tools import find

    path = find()
    lost = "the law sanitizers_report_nothing is not judged on a GPU"
    location = path or "not in CUDA_HOME, PATH and /usr/local/cuda*"
    return Line("compute-sanitizer", OK if path else MISSING, location, lost, "install the CUDA toolkit")


def gxx() -> Line:
    """Look for g++."""
    from flash_attest.emulator.compiler import compiler, no_compiler

    if problem := no_compiler():
        lost = "no GPU kernel runs on the CPU: no CUDA C++, Triton or Numba, and no race is traced"
        return Line(
            "g++",
            MISSING,
            problem.partition(":")[0],
            lost,
            "apt install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora, RHEL)",
        )
    return Line("g++", OK, compiler()[1])


def nvcc() -> Line:
    """Look for nvcc, as the emulator does."""
    from flash_attest.emulator.cuda.nvcc import nvcc as find

    path = find()
    lost = "CUDA C++ with inline PTX does not run on the CPU, and cuda_fa1 and cuda_fa2 not on a GPU"
    return Line(
        "nvcc", OK if path else MISSING, path or "none", lost, "install the CUDA toolkit, or name its nvcc in CUDACXX"
    )


def ninja() -> Line:
    """Look for ninja, which builds PyTorch's extensions."""
    is_found = is_there("ninja") or shutil.which("ninja")
    lost = "cuda_fa1 and cuda_fa2 are not built for a GPU"
    return Line("ninja", OK if is_found else MISSING, "found" if is_found else "none", lost, install(EXTRAS["ninja"]))


def triton() -> Line:
    """Check Triton."""
    if problem := lacking("triton"):
        return _lacks(
            "Triton", problem, "kernels in Triton are not judged, and some perturbations of a GPU are left out"
        )
    from flash_attest.emulator.triton import interpreted

    version = importlib.import_module("triton").__version__
    if interpreted():
        return Line(
            "Triton",
            MISSING,
            f"{version}, with TRITON_INTERPRET",
            "kernels are not judged as they are compiled",
            "unset TRITON_INTERPRET",
        )
    return Line("Triton", OK, version)


def numba() -> Line:
    """Check Numba, and whether the emulator knows the version of its CUDA part."""
    from flash_attest.emulator.numba import lacking as lacking_numba

    if problem := lacking_numba():
        return _lacks("Numba", problem, "kernels in Numba are not judged")
    versions = [f"{name} {importlib.import_module(name).__version__}" for name in ("numba", "numba_cuda")]
    return Line("Numba", OK, ", ".join(versions))


def cuda_bindings() -> Line:
    """Look for the driver API, which provides sparse memory on a GPU."""
    if problem := lacking("cuda.bindings"):
        return _lacks("cuda-bindings", problem, "on a GPU the laws about offsets beyond 32 bits are not judged")
    return Line("cuda-bindings", OK, importlib.import_module("cuda.bindings").__version__)


def cache() -> Line:
    """Check the folder of compiled kernels."""
    from flash_attest.emulator.build_cache import cache_folder
    from flash_attest.emulator.errors import EmulatorError

    try:
        folder = cache_folder()
    except EmulatorError as error:
        return Line(
            "cache",
            MISSING,
            str(error).partition(": name")[0],
            "no GPU kernel runs on the CPU",
            "name a folder in FLASH_ATTEST_CACHE",
        )
    return Line("cache", OK, f"{folder}, {_bytes_in(folder) / 2**20:.0f} MiB")


def _bytes_in(folder: str | os.PathLike) -> int:
    """Return the size of all files in a folder, of which other processes may move or remove some
    meanwhile. A cache has 100,000 files and more, for which pathlib takes five times as long.
    """
    size = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                size += _bytes_in(entry.path)
            else:
                with suppress(FileNotFoundError):
                    size += entry.stat(follow_symlinks=False).st_size
    return size


def isolation() -> Line:
    """Check whether implementations can be called in a separate process, so that a crash ends only
    that process.
    """
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        return Line("isolation", OK, "implementations are called in separate processes")
    lost = "implementations are called in the process of pytest: one that crashes or hangs ends the run"
    return Line("isolation", MISSING, f"none on {platform.system()}", lost, "use Linux, a container for example")


def sandbox() -> Line:
    """Look for what holds kernels under --untrusted: bubblewrap, or Linux's Landlock."""
    from flash_attest.runner.untrusted import bubblewrap, sandbox

    try:
        way = sandbox.chosen()
    except sandbox.NotHeld as error:
        return Line("sandbox", MISSING, "none", "--untrusted is refused", str(error).rpartition(": ")[2])
    words = f"--untrusted is held by {sandbox.in_words(way)}"
    if way == sandbox.LANDLOCK and (problem := bubblewrap.problem()):
        words += f" ({problem}, which would hold more)"
    return Line("sandbox", OK, words)


def sparse_memory() -> Line:
    """Try to map the addresses of tensors with 2^31 elements, without using the memory."""
    lost = "the laws about offsets beyond 32 bits are not judged on the CPU"
    try:
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        mmap.mmap(-1, SPARSE, flags=flags).close()
    except (OSError, AttributeError, ValueError) as error:
        return Line("address space", MISSING, f"less than {gib(SPARSE)} ({error})", lost, "ulimit -v unlimited")
    return Line("address space", OK, f"at least {gib(SPARSE)}")


def extra(module: str) -> Line:
    """Look for the module that an extra provides and one command needs."""
    lost = {"matplotlib": "flash-attest bench draws no bench.png", "ray": "there is no flash-attest sweep --ray"}[
        module
    ]
    if problem := lacking(module):
        return _lacks(module, problem, lost)
    return Line(module, OK, "found")


def _words(error: Exception) -> str:
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _lacks(name: str, problem: str, lost: str) -> Line:
    """Return the line for a missing library, given a message "X is not installed: COMMAND"."""
    missing, _, get = problem.partition(": ")
    return Line(name, MISSING, missing, lost, get)
