"""A kernel that shows whether Triton's interpreter multiplies bfloat16, which it holds as 16-bit integers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

SIZE = 16  # the least that tl.dot takes
VALUE = 3.0


def _products(X, PRODUCT, DOT, size: tl.constexpr):
    i = tl.arange(0, size)
    at = i[:, None] * size + i[None, :]
    x = tl.load(X + at)
    tl.store(PRODUCT + at, x * x)
    tl.store(DOT + at, tl.dot(x, x))


def defect() -> str:
    """What it computes wrongly, with the values; "" if nothing."""
    x = torch.full((SIZE, SIZE), VALUE, dtype=torch.bfloat16)
    product, dot = torch.empty_like(x), torch.empty(SIZE, SIZE)
    InterpretedFunction(_products)[(1,)](x, product, dot, SIZE)
    found = {"x * x": (product, VALUE**2), "tl.dot(x, x)": (dot, SIZE * VALUE**2)}
    wrong = [
        f"{name} is {got[0, 0]:.4g}, should be {want:g}" for name, (got, want) in found.items() if (got != want).any()
    ]
    if not wrong:
        return ""
    return (
        f"Triton's interpreter ({triton.__version__}) computes bfloat16 wrongly: with x = {VALUE:g}, {'; '.join(wrong)}"
    )
