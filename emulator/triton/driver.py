"""The device that Triton sees: one of the GPUs in ../devices.py, which runs on this CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.backends as triton_backends
from triton.backends.driver import DriverBase

from flash_attest.emulator import guards
from flash_attest.emulator.answers.device import Clock
from flash_attest.emulator.answers.memory import GPU
from flash_attest.emulator.devices import MAX_THREADS, MULTIPROCESSORS, emulated
from flash_attest.emulator.triton.backend import Backend, target
from flash_attest.emulator.triton.launcher import Launcher


def activate() -> None:
    """Make the emulator Triton's device in this process."""
    if is_active():
        return
    nvidia = triton_backends.backends["nvidia"]
    triton_backends.backends["nvidia"] = triton_backends.Backend(Backend, nvidia.driver)
    triton.runtime.driver.set_active(Driver())


def is_active() -> bool:
    # `active` would look for a GPU if there is no driver yet
    return isinstance(triton.runtime.driver._active, Driver)


class Utils:
    """The functions that Triton's compiled kernels need from a driver."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        gpu = emulated()
        return {
            "max_shared_mem": gpu.max_shared,
            "max_num_regs": gpu.attributes["MAX_REGISTERS_PER_BLOCK"],
            "multiprocessor_count": MULTIPROCESSORS,
            "warpSize": gpu.attributes["WARP_SIZE"],
            "sm_clock_rate": gpu.clock,
            "mem_clock_rate": gpu.memory_clock,
            "mem_bus_width": gpu.attributes["GLOBAL_MEMORY_BUS_WIDTH"],
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple:
        """Return (module, PTX for the launcher, registers, spilled registers, most threads per
        block).
        """
        return name, binary.decode(), 0, 0, MAX_THREADS

    def set_printf_fifo_size(self, size: int) -> None:
        """Do nothing, because device_print writes to stdout."""


class Driver(DriverBase):
    """Triton's active driver while kernels run in the emulator."""

    launcher_cls = Launcher

    def __init__(self) -> None:
        self.utils = Utils()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        # The name comes from a private module, which few programs need.
        from triton.backends.nvidia.driver import ty_to_cpp

        return ty_to_cpp(ty)

    def get_current_target(self):
        return target()

    def get_active_torch_device(self) -> torch.device:
        return GPU if guards.is_answering() else torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing, because there is only one device."""

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return emulated().capability

    def get_device_interface(self) -> type[Clock]:
        return Clock

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()

    def assemble_tensormap_to_arg(self, tensormaps_info: object, args: Any) -> Any:
        return args

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        return FirstThatRuns()


class FirstThatRuns:
    """Autotuning in the emulator: the first configuration that can be launched is chosen; the
    others are not compiled.

    Times on a CPU say nothing about a GPU. The choice must not depend on them, or a failure could
    not be repeated.
    """

    def __init__(self) -> None:
        self._chosen: object = None  # the arguments of the call for which a configuration has run

    def __call__(self, kernel_call: Callable[[], object], *, quantiles: Sequence[float] = (0.5,), **_: object) -> list:
        call = _arguments_of(kernel_call)
        if call is not None and call is self._chosen:
            return [float("inf")] * len(quantiles or [0])
        kernel_call()
        self._chosen = call
        return [1.0] * len(quantiles or [0])


def _arguments_of(kernel_call: Callable[[], object]) -> object:
    """Return Autotuner.nargs, which is one object for all configurations of a call; None if the
    caller is not the Autotuner.
    """
    names = getattr(getattr(kernel_call, "__code__", None), "co_freevars", ())
    if "self" not in names:
        return None
    return getattr(kernel_call.__closure__[names.index("self")].cell_contents, "nargs", None)
