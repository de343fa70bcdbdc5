"""The device of Triton and Numba kernels. In a process, all kernels of a language share it."""

from __future__ import annotations

EMULATOR = "the emulator runs its kernels where no GPU is visible: CUDA_VISIBLE_DEVICES=, or --device cpu of pytest"


def one_device(emulated: bool) -> dict[str, object]:
    """Return fields of Implementation: the device, and why the other is unavailable."""
    if emulated:
        return dict(devices={"cpu"}, unavailable={"cuda": "there is no GPU"})
    return dict(devices={"cuda"}, unavailable={"cpu": EMULATOR})
