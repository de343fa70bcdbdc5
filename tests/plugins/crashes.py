"""Ends its process during a call, for lengths above 40."""

import os

from flash_attest import Implementation
from tests.plugins import good


def forward(q, k, v):
    if q.shape[1] > 40 and q.shape[1] != 64:
        os._exit(3)
    return good.forward(q, k, v)


IMPL = Implementation(name="crashes", forward=forward, supports=good.IMPL.supports)
