"""The kernels of triton_kernels.py, as operators that are registered for CUDA tensors alone."""

from dataclasses import replace

import torch

from flash_attest.adapters import adapted
from tests.plugins import triton_kernels

library = torch.library.Library("registered_kernels", "DEF")
library.define("racy(Tensor q, Tensor k, Tensor v) -> Tensor")
library.impl("racy", triton_kernels.racy, "CUDA")


@torch.library.custom_op("registered_kernels::right", mutates_args=(), device_types="cuda")
def right(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return triton_kernels.forward(q, k, v)


FORWARD = {"right": right, "racy": torch.ops.registered_kernels.racy}
IMPLS = [replace(impl, forward=adapted(FORWARD[impl.name])[0]) for impl in triton_kernels.IMPLS]
