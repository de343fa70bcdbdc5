"""Correct, and slow enough to be interrupted."""

import time

from flash_attest import Implementation
from tests.plugins import good


def forward(q, k, v):
    time.sleep(0.02)
    return good.forward(q, k, v)


IMPL = Implementation(name="slow", forward=forward, supports=good.IMPL.supports)
