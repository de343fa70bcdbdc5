"""Triton's compiler for NVIDIA, up to PTX.

The PTX serves as the binary. ptxas, which takes a fifth of the time, does not run.
"""

from __future__ import annotations

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend

from flash_attest.emulator.ampere import CAPABILITY, DEVICE
from flash_attest.emulator.errors import NotCovered

ARCH = 10 * CAPABILITY[0] + CAPABILITY[1]
TARGET = GPUTarget("cuda", ARCH, DEVICE["WARP_SIZE"])


class Backend(CUDABackend):
    """Replaces CUDABackend while the emulator is active, but only for the emulator's target."""

    def parse_options(self, opts: dict) -> object:
        if self.target == TARGET and (opts.get("num_ctas") or 1) > 1:
            raise NotCovered(f"num_ctas={opts['num_ctas']}: should be 1 on the CPU: its target, sm_80, has no clusters")
        return super().parse_options(opts)

    def make_cubin(self, src: str, metadata: dict, opt: object, capability: int) -> bytes:
        if self.target != TARGET:
            return super().make_cubin(src, metadata, opt, capability)
        return src.encode()

    def hash(self) -> str:
        """Return a part of the key of Triton's cache, so that binaries for a GPU have other
        keys.
        """
        return f"emulator-{ARCH}" if self.target == TARGET else super().hash()
