"""A right implementation that loses the GPU, which is simulated, in one law: `-p` loads it."""

import os
from dataclasses import replace

from flash_attest.properties import trial
from flash_attest.properties.calling import raised
from tests.plugins import good

ILLEGAL = "CUDA error: an illegal memory access was encountered"
LAW = "test_out_is_additive_in_v"
lost, build = [], trial.build


def build_on_gpu(case, device):
    if lost:
        raise RuntimeError(ILLEGAL)
    return build(case, device)


def forward(q, k, v):
    if LAW in os.environ.get("PYTEST_CURRENT_TEST", ""):
        lost.append(True)
    if lost:
        raise RuntimeError(ILLEGAL)
    return good.forward(q, k, v)


def pytest_attention_impls():
    return [replace(good.IMPL, name="loses_gpu", forward=forward)]


raised.device_error = lambda device: ILLEGAL if lost else ""
trial.build = build_on_gpu
