"""The device of Triton and Numba kernels: a process runs all of a language on one device."""

from __future__ import annotations

EMULATOR = "the emulator runs its kernels where no GPU is visible: CUDA_VISIBLE_DEVICES=, or --device cpu of pytest"


def one_device(emulated: bool) -> dict[str, object]:
    """Return fields of Implementation: where the kernels run, and why not on the other device."""
    if emulated:
        return dict(devices={"cpu"}, unavailable={"cuda": "there is no GPU"})
    return dict(devices={"cuda"}, unavailable={"cpu": EMULATOR})
