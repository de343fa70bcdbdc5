"""Wrong kernels that lie to the process that judges them. A kernel process imports this file."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from pathlib import Path

import torch
from tricks import right, wrong  # a plug-in finds modules beside it

from flash_attest.impls import Implementation, Supports

MOST = 40  # calls in which a kernel behaves
CALLS = []
KEPT: dict = {}


def behind(tensor):
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + tensor.numel())


def denies(**denied):
    """Makes every answer of this process claim these fields."""
    wire = sys.modules["flash_attest.runner.untrusted.wire"]
    if not KEPT.get("denies"):
        KEPT["denies"], send = True, wire.send
        wire.send = lambda pipe, header, blocks=(): send(pipe, {**header, **denied}, blocks)


def denies_that_it_overwrites_its_input(q, k, v):
    """Scales q in place, and says that nothing was written."""
    denies(written=[])
    return right(q.mul_(q.shape[-1] ** -0.5), k * q.shape[-1] ** 0.5, v)


def denies_that_it_writes_past_the_end(q, k, v):
    """Writes to the element after k, and says that nothing was written."""
    denies(written=[])
    behind(k).fill_(1.0)
    return right(q, k, v)


def denies_that_it_reuses_its_output(q, k, v):
    """Returns the same memory in each call. Asked again, it would send what was there at first."""
    kernel = sys.modules["flash_attest.runner.untrusted.kernel"].Kernel
    kernel.on_again = lambda self, request, blocks: ({"items": []}, [])
    return KEPT.setdefault((q.shape, q.dtype), torch.empty_like(q)).copy_(right(q, k, v))


def denies_that_it_writes_later(q, k, v):
    """Changes the output in a thread after the call, and forbids that its memory is read."""
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    out = right(q, k, v)
    threading.Timer(0.02, lambda: out.mul_(2)).start()
    return out


def cuts_off_the_inputs(q, k, v):
    """Shortens the file of the inputs, so that the judge ends with a bus error when it compares."""
    for descriptor in range(3, 64):
        try:
            os.ftruncate(descriptor, 0)
        except (OSError, ValueError):
            continue
    return wrong(q, k, v)


def seals_the_inputs(q, k, v):
    """Seals the file of the inputs, so that the judge can no longer write to it."""
    import fcntl

    for descriptor in range(3, 64):
        try:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_FUTURE_WRITE)
            return right(q, k, v)
        except (OSError, AttributeError):
            continue
    return wrong(q, k, v)


def frees_its_output(q, k, v):
    """Returns memory that is gone when it is read."""
    memory = mmap.mmap(-1, 1 << 20)
    out = torch.frombuffer(memory, dtype=q.dtype, count=q.numel()).view(q.shape)
    out.copy_(right(q, k, v))
    ctypes.CDLL(None).munmap(ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(1 << 20))
    return out


def is_right_in_its_first_calls(q, k, v):
    """Is right until it has been called often enough to have been tested."""
    CALLS.append(1)
    return right(q, k, v) if len(CALLS) <= MOST else wrong(q, k, v)


def is_right_where_it_is_tested(q, k, v):
    """Is right where something looks like a test: variables, arguments, modules, its parent."""
    clues = [*os.environ, *sys.argv, *sys.orig_argv, *(name for name in ("pytest", "_pytest") if name in sys.modules)]
    for name in ("cmdline", "environ"):
        try:
            clues.append(Path(f"/proc/{os.getppid()}/{name}").read_text())
        except OSError:
            continue
    return right(q, k, v) if any("pytest" in clue.lower() for clue in clues) else wrong(q, k, v)


def hides_its_operators(q, k, v):
    """Calls PyTorch's own attention, and hides it from the profiler."""
    sys.modules["flash_attest.runner.untrusted.observed"].Operators.__exit__ = lambda self, *error: None
    return torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)


LIES = [
    denies_that_it_overwrites_its_input, denies_that_it_writes_past_the_end, denies_that_it_reuses_its_output,
    denies_that_it_writes_later, cuts_off_the_inputs, seals_the_inputs, frees_its_output, is_right_in_its_first_calls,
    is_right_where_it_is_tested, hides_its_operators,
]  # fmt: skip
IMPLS = [
    Implementation(name=lie.__name__, forward=lie, supports=Supports(dtypes={torch.float32}, headdims={16}), share=1.0)
    for lie in LIES
]
