"""Reads the memory of a kernel process from the judging process.

Outputs are read where the kernel process says that they lie, and read again later. So it need not
be believed when it says that an output has stayed as it was.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from pathlib import Path

import torch

from flash_attest.runner.untrusted.wire import Closed, Garbled, view


class _Piece(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("size", ctypes.c_size_t)]


@functools.cache
def _function():
    function = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)
    if function is not None:
        function.restype = ctypes.c_ssize_t
        function.argtypes = (
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_ulong,
            ctypes.c_void_p,
            ctypes.c_ulong,
            ctypes.c_ulong,
        )
    return function


@functools.cache
def permitted() -> bool:
    """Return whether this system lets a process read the memory of its children. Containers may
    forbid it, and so may Yama, a security module.
    """
    known = ctypes.create_string_buffer(os.urandom(8), 8)
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    restricted = scope.is_file() and int(scope.read_text()) >= (3 if os.geteuid() == 0 else 2)
    return not restricted and reads(os.getpid(), ctypes.addressof(known), known.raw)


def reads(pid: int, address: int, expected: bytes) -> bool:
    """Return whether this process can read another one's memory, by looking for known bytes."""
    if _function() is None:
        return False
    try:
        found = read(pid, address, len(expected))
        return bytes(view(found)) == expected
    except (OSError, Garbled, Closed):
        return False


def read(pid: int, address: int, size: int) -> torch.Tensor:
    """Return bytes of another process.

    Raises Garbled if there is no memory at that address, Closed if there is no such process.
    """
    block, done = torch.empty(size, dtype=torch.uint8), 0
    while done < size:
        here = _Piece(block.data_ptr() + done, size - done)
        there = _Piece(address + done, size - done)
        n = _function()(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if n <= 0:
            number = ctypes.get_errno()
            if number == errno.ESRCH:
                raise Closed
            if number in (errno.EFAULT, errno.ENOMEM, 0):
                raise Garbled(f"an output at {address:#x}, where it has no memory")
            raise OSError(number, f"the memory of the kernel process: {os.strerror(number)}")
        done += n
    return block
