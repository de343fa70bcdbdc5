"""Correct kernels of test_battery.py, with their inputs and expected values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from flash_attest.races.tracing import trace
from tests.emulator.numba import kernels, more_kernels, warps_and_atomics

DRAWN = torch.Generator()


def draws(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=DRAWN.manual_seed(sum(shape)))


def ints(n: int, below: int, dtype=torch.int32, least: int = 0) -> torch.Tensor:
    return torch.randint(least, below, (n,), generator=DRAWN.manual_seed(n)).to(dtype)


@dataclass(frozen=True)
class Subject:
    """A call kernel[grid, block, 0, shared](*inputs(), out).

    want(*inputs) is the expected output. Before the call, the output holds `low` or `start`.
    """

    kernel: str
    grid: Any
    block: Any
    inputs: Callable[[], tuple]
    want: Callable[..., torch.Tensor]
    shared: int = 0  # in bytes
    start: Callable[..., torch.Tensor] | None = None
    any_order: bool = False
    in_place: bool = False  # called as kernel(out)
    tolerance: float = 1e-5

    @property
    def module(self) -> ModuleType:
        return next(file for file in (kernels, warps_and_atomics, more_kernels) if hasattr(file, self.kernel))

    def arguments(self) -> tuple:
        """Return new arguments of a launch each time. The last one is the output."""
        inputs = self.inputs()
        out = self.start(*inputs) if self.start else torch.zeros_like(self.want(*inputs))
        return (out,) if self.in_place else (*inputs, out)

    def found(self, kernel: Any, seed: int, switch: float = 0.0) -> tuple[list, torch.Tensor]:
        """Return (findings, output)."""
        given = self.arguments()
        findings = trace(lambda: kernel[self.grid, self.block, 0, self.shared](*given), seed=seed, switch=switch)
        return findings, given[-1].sort().values if self.any_order else given[-1]


def blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.view(-1, size)


def warps(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 32)


def neighbours(x: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.pad(x, (1, 1))
    return y[:-2] + y[1:-1] + y[2:]


def smoothed(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[1:-1] = x[:-2] / 4 + x[1:-1] / 2 + x[2:] / 4
    return y


def next_generation(x: torch.Tensor) -> torch.Tensor:
    around = torch.nn.functional.avg_pool2d(x[None, None].float(), 3, 1, 1, divisor_override=1)[0, 0]
    return ((around == 3) | ((around == 4) & (x == 1))).to(x.dtype)


def median_of_five(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[2:-2] = x.unfold(0, 5, 1).median(1).values
    return y


def steps_to_one(n: int) -> int:
    return 0 if n == 1 else 1 + steps_to_one(n // 2 if n % 2 == 0 else 3 * n + 1)


def voted(x: torch.Tensor) -> torch.Tensor:
    p = warps(x > 0)
    rows = [p.all(1), p.any(1), p.all(1) | ~p.any(1)]
    halves = (x > 0).view(-1, 16).all(1).repeat_interleave(16)
    return torch.stack([*(row.repeat_interleave(32) for row in rows), halves]).int()


def of_bits(x: torch.Tensor) -> torch.Tensor:
    given = [n % 2**32 for n in x.tolist()]
    rows = [
        [n.bit_count() for n in given],
        [32 - n.bit_length() for n in given],
        [(n & -n).bit_length() for n in given],
        [int(f"{n:032b}"[::-1], 2) for n in given],
    ]
    return torch.tensor(rows, dtype=torch.int64).to(torch.int32)


def alike(x: torch.Tensor) -> torch.Tensor:
    w = warps(x)
    same = (w[:, :, None] == w[:, None, :]).sum(2).flatten()
    return torch.stack([same, ((w & 1) == (w[:, :1] & 1)).all(1).repeat_interleave(32)]).int()


def bit_sums(x: torch.Tensor) -> torch.Tensor:
    xor = np.bitwise_xor.reduce([1 << n % 32 for n in x.tolist()])
    every = np.bitwise_or.reduce([1 << n % 32 for n in x.tolist()])
    return torch.tensor([every, ~every, xor]).to(torch.int32)


def columns_of(x: torch.Tensor) -> torch.Tensor:
    low, high = x.min(1, keepdim=True).values, x.max(1, keepdim=True).values
    return (x - low) / (high - low)


def padded_warp_turn(x: torch.Tensor) -> torch.Tensor:
    return warps(x).flip(1).flatten()


COLLATZ = ints(100, 300, torch.int64, 1)
LIVING = (draws(21, 13) > 0.3).to(torch.int8)
FEW = torch.where(
    torch.arange(128) < 64, torch.arange(128).abs() + 1.0, draws(128)
)  # all of the first warps are positive

RIGHT = {
    subject.kernel: subject
    for subject in [
        Subject("reverse", 3, 64, lambda: (draws(3, 64),), lambda x: x.flip(1)),
        Subject("reverse_rows", 3, 64, lambda: (draws(3, 45, dtype=torch.float64),), lambda x: x.flip(1)),
        Subject("transpose", (3, 2), (8, 8), lambda: (draws(21, 13),), lambda x: x.T.contiguous()),
        Subject("stencil", 3, 64, lambda: (draws(150),), neighbours),
        Subject("smooth", 3, 64, lambda: (draws(150),), smoothed),
        Subject("life", (3, 2), (8, 8), lambda: (LIVING.clone(),), next_generation),
        Subject("block_sum", 3, 128, lambda: (draws(384),), lambda x: blocks(x, 128).sum(1)),
        Subject("softmax", 3, 64, lambda: (draws(3, 150),), lambda x: x.softmax(1)),
        Subject("scan", 1, 64, lambda: (draws(64, dtype=torch.float64),), lambda x: x.cumsum(0)),
        Subject("bitonic", 1, 64, lambda: (ints(64, 1000),), lambda x: x.sort().values),
        Subject("settle", 1, 64, lambda: ((draws(64) * 9).sort().values.roll(5),), lambda x: x.sort().values),
        Subject(
            "counted", 4, 96, lambda: (draws(4, 96) + torch.tensor([[9.0], [0], [-9], [1]]),),
            lambda x: torch.stack([(x > 0).sum(1), (x > 0).all(1), (x > 0).any(1)], 1).int(),
        ),
        Subject("matmul", (3, 2), (8, 8), lambda: (draws(19, 21), draws(21, 13)), lambda a, b: a @ b),
        Subject(
            "dynamic_matmul", (3, 2), (8, 8), lambda: (draws(19, 21), draws(21, 13)), lambda a, b: a @ b, shared=2 * 4 * 64
        ),
        Subject(
            "two_types", 1, 64, lambda: (draws(64, dtype=torch.float64),), lambda x: x[torch.arange(64) * 5 % 64],
            shared=64 * 8 + 64 * 4,
        ),
        Subject("fourier", 1, 64, lambda: (draws(64, dtype=torch.complex64),), torch.fft.fft, tolerance=1e-4),
        Subject(
            "warp_sum", 2, 128, lambda: (draws(256, dtype=torch.float64),), lambda x: blocks(x, 128).sum(1)
        ),
        Subject(
            "butterfly", 2, 64, lambda: (draws(128),),
            lambda x: torch.stack([warps(x).max(1).values.repeat_interleave(32), warps(x).roll(-1, 1).flatten()]),
        ),
        Subject("warp_scan", 2, 64, lambda: (ints(128, 50, torch.int64),), lambda x: warps(x).cumsum(1).flatten()),
        Subject(
            "compact", 3, 64, lambda: (draws(150), torch.zeros(1, dtype=torch.int32)),
            lambda x, count: x[x > 0].sort().values, any_order=True,
        ),
        Subject("votes", 1, 128, lambda: (FEW.clone(),), voted),
        Subject(
            "alike", 1, 64, lambda: (ints(64, 9) * torch.tensor([1, 2], dtype=torch.int32).repeat_interleave(32),), alike
        ),
        Subject("warp_tile", 1, 128, lambda: (draws(128),), padded_warp_turn),
        Subject("half_warps", 1, 64, lambda: (draws(64),), lambda x: x[torch.arange(64) ^ 15]),
        Subject("bits", 1, 64, lambda: (ints(64, 2**40, torch.int64).to(torch.int32),), of_bits),
        Subject(
            "histogram", 3, 64, lambda: (ints(500, 32),), lambda x: torch.bincount(x, minlength=32).int()
        ),
        Subject(
            "extremes", 3, 64, lambda: (draws(150, dtype=torch.float64),), lambda x: torch.stack([x.max(), x.min()]),
        ),
        Subject("column_sums", (3, 2), (8, 8), lambda: (draws(21, 13),), lambda x: x.sum(0)),
        Subject(
            "flags", 1, 64, lambda: (ints(64, 20),), bit_sums,
            start=lambda x: torch.tensor([0, -1, 0], dtype=torch.int32),
        ),
        Subject(
            "product", 2, 32, lambda: (ints(64, 1000, torch.int64, 1),),
            lambda x: torch.tensor([int(np.prod(x.numpy().astype(object))) % 1000003]),
            start=lambda x: torch.ones(1, dtype=torch.int64),
        ),
        Subject(
            "tickets", 2, 64, lambda: (ints(128, 9), torch.zeros(2, dtype=torch.uint32)), lambda x,
            count: torch.arange(128).int()
        ),
        Subject(
            "last_block_sums", 4, 32,
            lambda: (draws(128, dtype=torch.float64), torch.zeros(4, dtype=torch.float64), torch.zeros(1, dtype=torch.int32)),
            lambda x, parts, count: x.sum().view(1),
        ),
        Subject(
            "handed_over", 2, 32, lambda: (torch.tensor([41], dtype=torch.uint64), torch.zeros(1, dtype=torch.uint64)),
            lambda x, flag: torch.tensor([42], dtype=torch.uint64),
        ),
        Subject("medians", 3, 64, lambda: (draws(150),), median_of_five),
        Subject(
            "modes", 3, 64, lambda: (ints(180, 9),), lambda x: torch.tensor(
                [max(range(9), key=lambda n, i=i: (x[i : i + 5].tolist().count(n), -n)) for i in range(176)]
            ).int(),
        ),
        Subject("scaled", 3, 64, lambda: (draws(3, 45), (3, 45)), lambda x, shape: columns_of(x)),
        Subject(
            "half_dot", 1, 32, lambda: (draws(32).half(), draws(32).half() + 1),
            lambda x, y: (x * y).float().sum().view(1),
        ),
        Subject(
            "collatz", 2, 64, lambda: (COLLATZ.clone(),), lambda x: torch.tensor([steps_to_one(n) for n in x.tolist()])
        ),
        Subject(
            "whole_words", 1, 32, lambda: (ints(4 * 20, 256, torch.uint8),), lambda x: x[4:].view(torch.int32)
        ),
        Subject("axpy", 2, 32, lambda: (2.5, draws(150).abs()), lambda a, x: a * x + x.sqrt()),
        Subject("box", (2, 3, 1), (4, 4, 4), lambda: (draws(7, 9, 3),), lambda x: 2 * x.permute(2, 1, 0)),
        Subject(
            "shift", 1, 127, lambda: (draws(128),), lambda x: torch.cat([x[1:], x[-1:]]), start=lambda x: x.clone(),
            in_place=True,
        ),
        Subject("rows_of_blocks", 3, 48, lambda: (draws(130, 3),), lambda x: x.double()),
        Subject("two_halves", 1, 64, lambda: (draws(4, 32),), lambda x: x.flip(1)),
    ]
}  # fmt: skip
