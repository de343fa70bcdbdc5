"""Triton's compiler for NVIDIA, up to PTX.

The PTX serves as the binary. ptxas, which takes a fifth of the time, does not run.
"""

from __future__ import annotations

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend

from flash_attest.emulator.devices import WARP_SIZE, emulated
from flash_attest.emulator.errors import NotCovered

CLUSTERS_SINCE = 90


def target() -> GPUTarget:
    """Return the emulated GPU, in Triton's words."""
    return GPUTarget("cuda", emulated().target, WARP_SIZE)


class Backend(CUDABackend):
    """Replaces CUDABackend while the emulator is active, but only for the emulator's target."""

    def parse_options(self, opts: dict) -> object:
        if self.target == target() and (opts.get("num_ctas") or 1) > 1 and self.target.arch < CLUSTERS_SINCE:
            raise NotCovered(
                f"num_ctas={opts['num_ctas']}: there are no clusters on sm_{self.target.arch}: emulate(target=90)"
            )
        return super().parse_options(opts)

    def make_cubin(self, src: str, metadata: dict, opt: object, capability: int) -> bytes:
        if self.target != target():
            return super().make_cubin(src, metadata, opt, capability)
        return src.encode()

    def hash(self) -> str:
        """Return a part of the key of Triton's cache, so that binaries for a GPU have other
        keys.
        """
        return f"emulator-{self.target.arch}" if self.target == target() else super().hash()
