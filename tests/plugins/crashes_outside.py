"""Ends its process if it is called with a head dim that it does not declare."""

import os

from flash_attest import Implementation
from tests.plugins import good


def forward(q, k, v):
    if q.shape[3] not in good.IMPL.supports.headdims:
        os._exit(3)
    return good.forward(q, k, v)


IMPL = Implementation(name="crashes_outside", forward=forward, supports=good.IMPL.supports)
