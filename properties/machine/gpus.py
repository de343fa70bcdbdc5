"""The cores and GPUs that a run may use, and emulation for kernels in Triton and Numba."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from flash_attest.emulator import cutedsl as emulated_cutedsl
from flash_attest.emulator import devices
from flash_attest.emulator import numba as emulated_numba
from flash_attest.emulator import triton as emulated_triton
from flash_attest.emulator.errors import EmulatorError


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_gpu() -> bool:
    """Return whether this machine has a GPU, visible or not."""
    return shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists()


def visible_gpus() -> list[str]:
    """Return the visible GPUs by their names in CUDA_VISIBLE_DEVICES. CUDA is not initialised."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu and gpu != "-1"]
    if not has_gpu():
        return []
    import torch  # takes seconds; pytest --help should not wait for it

    return [str(n) for n in range(torch.cuda.device_count())]


def free_memory(gpus: list[str]) -> list[int] | None:
    """Return the free bytes of GPUs that are named as in CUDA_VISIBLE_DEVICES, by nvidia-smi.

    Asking CUDA would create a context on each, which takes seconds. Returns None if nvidia-smi does
    not say, for example for a part of a GPU (MIG).
    """
    query = ["nvidia-smi", "--query-gpu=index,uuid,memory.free", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout
        rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
        free = {name: int(mib) << 20 for index, uuid, mib in rows for name in (index, uuid)}
        return [free[gpu] for gpu in gpus]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None


def in_turn(gpus: Sequence[str], fit: Sequence[int]) -> list[str]:
    """Return the GPU of each worker, dealt in turn to the GPUs with room: "0", "1", "1", "1".

    fit: how many workers fit on each GPU.
    """
    return [gpu for turn in range(max(fit)) for gpu, n in zip(gpus, fit, strict=True) if turn < n]


def hide_gpus() -> None:
    """Hide all GPUs from this process and its children. Call this before CUDA is used."""
    if visible_gpus():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def emulate_if_no_gpu(device: str = "auto", target: str | None = None) -> None:
    """Run kernels in Triton and Numba in the emulator if no GPU is visible.

    This includes kernels of plug-ins. device: as for --device; "cpu" hides the GPUs. target: the
    GPU to emulate, as for --emulated; None leaves the choice to the environment. Raises
    EmulatorError if there is no such GPU, and for a target where a real GPU is visible.
    """
    if device == "cpu":
        hide_gpus()
    if visible_gpus():
        if target is not None:
            raise EmulatorError(f"sm_{target} is not emulated: a GPU runs the kernels here: hide it with --device cpu")
        return
    if target is not None:
        devices.choose(int(target))
    devices.target()  # raises if FLASH_ATTEST_EMULATED names none
    emulated_triton.activate_when_imported()
    emulated_numba.activate_when_imported()
    emulated_cutedsl.prepare()


def emulated_on(device: str) -> str:
    """Return the GPU whose kernels a run emulates, such as sm_80; "" where a GPU runs them.

    device: of the run, "cpu" or "cuda".
    """
    return f"sm_{devices.target()}" if device == "cpu" else ""


def note_on(device: str) -> str:
    """Return ", as sm_90" where a GPU is emulated that is not the default; else ""."""
    return devices.note() if device == "cpu" else ""
