"""The GPUs that can be emulated: an A100 (8.0), the default, and an H100 (9.0).

The numbers are from the CUDA C++ Programming Guide's table of compute capabilities and NVIDIA's
data sheets.

A process emulates one of them: `choose(90)`, or the environment variable FLASH_ATTEST_EMULATED,
which child processes inherit. Triton, Numba and torch's answers keep what they learn about their
device, so the choice is fixed once one of them has asked (`emulated`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from flash_attest.emulator.errors import EmulatorError

KIB = 1024
VARIABLE = "FLASH_ATTEST_EMULATED"
DEFAULT = 80
# What both have.
STATIC_SHARED = 48 * KIB  # bytes of shared memory that a block has by default
MAX_THREADS = 1024  # in a block
LARGEST_BLOCK = (1024, 1024, 64)
LARGEST_GRID = (2**31 - 1, 65535, 65535)
WARP_SIZE = 32
# The number is small, so that kernels that launch one block per multiprocessor process several
# tiles in each block here too.
MULTIPROCESSORS = 4


@dataclass(frozen=True)
class Device:
    """A GPU. memory, max_shared (of a block), shared (of a multiprocessor) and l2 are in bytes, the
    clocks in kHz.
    """

    target: int  # 10 * major + minor
    memory: int
    max_shared: int
    shared: int
    l2: int
    clock: int
    memory_clock: int
    attributes: dict[str, int] = field(init=False, repr=False, compare=False)  # names as in Numba and CUDA

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", _attributes(self))

    @property
    def capability(self) -> tuple[int, int]:
        return divmod(self.target, 10)

    @property
    def arch(self) -> str:
        """Return its name as a target, such as sm_80."""
        return f"sm_{self.target}"

    @property
    def name(self) -> str:
        return f"emulated {self.arch}"


def _attributes(device: Device) -> dict[str, int]:
    major, minor = device.capability
    return {
        "MAX_THREADS_PER_BLOCK": MAX_THREADS,
        **{f"MAX_BLOCK_DIM_{axis}": size for axis, size in zip("XYZ", LARGEST_BLOCK, strict=True)},
        **{f"MAX_GRID_DIM_{axis}": size for axis, size in zip("XYZ", LARGEST_GRID, strict=True)},
        "MAX_SHARED_MEMORY_PER_BLOCK": STATIC_SHARED,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": device.max_shared,
        "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": device.shared,
        "MAX_REGISTERS_PER_BLOCK": 64 * KIB,
        "MAX_REGISTERS_PER_MULTIPROCESSOR": 64 * KIB,
        "MAX_THREADS_PER_MULTI_PROCESSOR": 2048,
        "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
        "TOTAL_CONSTANT_MEMORY": 64 * KIB,
        "WARP_SIZE": WARP_SIZE,
        "MULTIPROCESSOR_COUNT": MULTIPROCESSORS,
        "COMPUTE_CAPABILITY_MAJOR": major,
        "COMPUTE_CAPABILITY_MINOR": minor,
        "CLOCK_RATE": device.clock,
        "MEMORY_CLOCK_RATE": device.memory_clock,
        "GLOBAL_MEMORY_BUS_WIDTH": 5120,
        "L2_CACHE_SIZE": device.l2,
        "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 2,
        "UNIFIED_ADDRESSING": 1,
        "CONCURRENT_KERNELS": 0,
        "COOPERATIVE_LAUNCH": 0,
        "KERNEL_EXEC_TIMEOUT": 0,
        "TCC_DRIVER": 0,
        "PCI_BUS_ID": 0,
        "PCI_DEVICE_ID": 0,
    }


A100 = Device(80, 40 * KIB**3, 163 * KIB, 164 * KIB, 40 * KIB**2, 1_410_000, 1_215_000)
H100 = Device(90, 80 * KIB**3, 227 * KIB, 228 * KIB, 50 * KIB**2, 1_980_000, 2_619_000)
DEVICES = {device.target: device for device in (A100, H100)}
TARGETS = tuple(map(str, DEVICES))  # as options and the environment variable spell them
_emulated: Device | None = None  # None until something asks


def emulated() -> Device:
    """Return the GPU that this process emulates. From now on it is fixed.

    Raises EmulatorError if FLASH_ATTEST_EMULATED names none.
    """
    global _emulated
    if _emulated is None:
        _emulated = _named()
    return _emulated


def target() -> int:
    """Return which GPU is emulated, or would be: 80 or 90. It is not fixed by this.

    Raises EmulatorError as `emulated` does.
    """
    return (_emulated or _named()).target


def choose(target: int) -> None:
    """Emulate this GPU, 80 or 90, in this process and in those that it starts.

    Raises EmulatorError for another number, and if this process emulates another one already.
    """
    if target not in DEVICES:
        raise EmulatorError(f"target={target!r}: {_should()}")
    if _emulated is not None and _emulated.target != target:
        raise EmulatorError(
            f"target={target}: this process emulates {_emulated.arch} already, for which kernels may be compiled: "
            "choose it before anything else"
        )
    os.environ[VARIABLE] = str(target)


def note() -> str:
    """Return ", as sm_90" for a GPU that is not the default; "" for the default."""
    return "" if target() == DEFAULT else f", as {DEVICES[target()].arch}"


def _named() -> Device:
    text = os.environ.get(VARIABLE) or str(DEFAULT)
    if text not in TARGETS:
        raise EmulatorError(f"{VARIABLE}={text}: {_should()}")
    return DEVICES[int(text)]


def _should() -> str:
    listed = " or ".join(f"{device.target} ({device.arch})" for device in DEVICES.values())
    return f"should be {listed}"
