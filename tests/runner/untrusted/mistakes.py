"""Kernels with one honest mistake each, for a kernel process."""

import threading
import time

import torch

from flash_attest.impls import Implementation, Supports, python_tiled, torch_math


class Unhappy(Exception):
    pass


def right(q, k, v):
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(dim=-1), v)


def writes_its_input(q, k, v):
    return right(q.mul_(q.shape[-1] ** -0.5), k * q.shape[-1] ** 0.5, v)


def writes_behind_its_input(q, k, v):
    behind(k).fill_(1.0)
    return right(q, k, v)


def reads_behind_its_input(q, k, v):
    return right(q, k, v) + 0 * behind(v)


def behind(tensor):
    """Return the element after the last one."""
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + tensor.numel())


def leaves_memory_unwritten(q, k, v):
    out = torch.empty_like(q)
    out[:, 1:] = right(q, k, v)[:, 1:]
    return out


def goes_on_after_the_call(q, k, v):
    out = right(q, k, v)

    def go_on():  # for longer than anybody takes to look at it twice
        for _ in range(100):
            time.sleep(0.005)
            out.add_(1)

    threading.Thread(target=go_on, daemon=True).start()
    return out


def raises(q, k, v):
    raise Unhappy("about this")


def returns_none(q, k, v):
    return None


def picky(q, k, v):
    return right(q, k, v)


def even(case):
    return f"seqlen_q must be even, is {case.seqlen_q}" if case.seqlen_q % 2 else None


KERNELS = [
    right, writes_its_input, writes_behind_its_input, reads_behind_its_input, leaves_memory_unwritten,
    goes_on_after_the_call, raises, returns_none, picky,
]  # fmt: skip
IMPLS = [
    Implementation(
        name=kernel.__name__,
        forward=kernel,
        supports=Supports(dtypes={torch.float32}, headdims={16}, accepts=even if kernel is picky else None),
    )
    for kernel in KERNELS
]
IMPLS += [torch_math.IMPL, python_tiled.IMPL]  # right ones in the same process, which takes seconds to start
