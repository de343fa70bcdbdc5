"""The cores and GPUs that a run may use; where kernels in Triton and Numba run if there is no GPU."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from flash_attest.emulator import numba as emulated_numba
from flash_attest.emulator import triton as emulated_triton


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_gpu() -> bool:
    """Whether this machine has a GPU, visible or not."""
    return shutil.which("nvidia-smi") is not None or Path("/dev/nvidia0").exists()


def visible_gpus() -> list[str]:
    """The GPUs as CUDA_VISIBLE_DEVICES names them; found without touching CUDA in this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu and gpu != "-1"]
    if not has_gpu():
        return []
    import torch  # takes seconds, for which pytest --help should not wait

    return [str(n) for n in range(torch.cuda.device_count())]


def hide_gpus() -> None:
    """Have this process, which has not touched CUDA yet, and those that it starts see no GPU."""
    if visible_gpus():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def emulate_if_no_gpu(device: str = "auto") -> None:
    """Where no GPU is visible, have kernels in Triton and in Numba run in the emulator, those of plug-ins too.

    device "cpu", as --device has it, hides the GPUs.
    """
    if device == "cpu":
        hide_gpus()
    if not visible_gpus():
        emulated_triton.activate_when_imported()
        emulated_numba.activate_when_imported()
