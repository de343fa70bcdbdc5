"""Whether Triton's kernels are interpreted on the CPU, and what the interpreter computes wrongly.

Triton reads TRITON_INTERPRET at import, so ask `interpreted` before that. This module does not import Triton, unless some
kernel was interpreted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest import mock

import torch

INTERPRETER = "triton.runtime.interpreter"


def interpreted(gpu: bool) -> bool:
    """Whether TRITON_INTERPRET is on. If it is unset it is first set, for Triton to read: on if there is no GPU."""
    os.environ.setdefault("TRITON_INTERPRET", "0" if gpu else "1")
    return os.environ["TRITON_INTERPRET"].lower() in ("1", "true", "yes", "on", "y")


@contextmanager
def bfloat16_launches() -> Iterator[list[str]]:
    """The list gets the name of each kernel that Triton's interpreter runs on a bfloat16 tensor in this block.

    Whoever launches it, and from whichever thread. If the block is what imports the interpreter, its launches are known only
    by name, so they count whatever their tensors are.
    """
    launched: list[str] = []
    interpreter = sys.modules.get(INTERPRETER)
    if interpreter is None:
        yield launched
        if (interpreter := sys.modules.get(INTERPRETER)) is not None:
            launched += [fn.__name__ for fn in interpreter.InterpretedFunction.rewritten_fn]
        return
    launch = interpreter.GridExecutor.__call__

    def noted(self, *args, **kwargs):
        if any(_is_bfloat16(arg) for arg in (*args, *kwargs.values())):
            launched.append(self.fn.__name__)
        return launch(self, *args, **kwargs)

    with mock.patch.object(interpreter.GridExecutor, "__call__", noted):
        yield launched


def _is_bfloat16(arg: object) -> bool:
    """Whether an argument of a kernel is a bfloat16 tensor, or holds one: a tuple, a descriptor (its `base`)."""
    if isinstance(arg, tuple):
        return any(map(_is_bfloat16, arg))
    return getattr(getattr(arg, "base", arg), "dtype", None) == torch.bfloat16


@cache
def bfloat16_defect() -> str:
    """What Triton's interpreter computes wrongly in bfloat16, tried out once; "" if nothing. Imports Triton."""
    from impls import interpreted_products

    return interpreted_products.defect()
