"""Small Triton kernels, judged in 20 orders of threads: half of them correct, half faulty, most of
these by an edit of the compiled PTX.

A correct kernel has no finding and the expected values in every order of threads, warps and blocks.
A faulty kernel has the expected finding in every order, with the Python line from which the edited
instruction was compiled.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("triton")

from flash_attest.races.tracing import tracing
from tests.emulator.taken import Taken, taking
from tests.emulator.triton import kernels

SEEDS = range(20)


def draws(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def ints(n: int, below: int) -> torch.Tensor:
    return torch.randint(below, (n,), generator=torch.Generator().manual_seed(n), dtype=torch.int32)


@dataclass(frozen=True)
class Subject:
    """A call kernel[grid](*inputs(), out, *more, **options). want(*inputs) is the expected
    output.
    """

    kernel: str
    grid: int
    inputs: Callable[[], tuple]
    want: Callable[..., torch.Tensor]
    more: tuple = ()
    options: tuple = ()
    scratch: int = 0  # number of tensors between the inputs and the output, zero at first
    low: float = 0.0  # first value of the output

    def taken(self) -> Taken:
        return _taken(self)

    @property
    def out(self) -> int:
        return len(self.inputs()) + self.scratch if self.kernel != "in_place" else 0


@functools.cache
def _taken(subject: Subject) -> Taken:
    inputs = subject.inputs()
    want = subject.want(*inputs)
    scratch = [torch.zeros(64, dtype=torch.int32 if n else torch.float32) for n in range(subject.scratch)]
    outputs = [] if subject.kernel == "in_place" else [torch.full(want.shape, subject.low, dtype=want.dtype)]
    with taking() as seen, tracing():
        kernel = getattr(kernels, subject.kernel)
        kernel[(subject.grid,)](*inputs, *scratch, *outputs, *subject.more, **dict(subject.options))
    return seen[0]


def row(kernel: str, *more, rows=3, n=600, **options) -> Subject:
    N = 1024
    want = {
        "softmax": lambda x: x.softmax(1),
        "layernorm": lambda x, w: torch.nn.functional.layer_norm(x, (n,), w),
    }[kernel]
    inputs = (lambda: (draws(rows, n), draws(n))) if kernel == "layernorm" else lambda: (draws(rows, n),)
    return Subject(kernel, rows, inputs, want, (n, N), tuple(options.items()))


def product(dtype=torch.float16, stages=2, precision="tf32", k=160, warps=4) -> Subject:
    return Subject(
        "matmul", 1, lambda: (draws(64, k, dtype=dtype), draws(k, 32, dtype=dtype)), lambda a, b: a.float() @ b.float(), (k,),
        (("M", 64), ("N", 32), ("K", 32), ("PRECISION", precision), ("STAGES", stages), ("num_warps", warps)),
    )  # fmt: skip


def one_row(kernel: str, n: int, want: Callable, x: Callable[[], tuple] | None = None, **options) -> Subject:
    return Subject(kernel, 1, x or (lambda: (draws(n),)), want, (n,), tuple(options.items()))


def qkv() -> tuple:
    return tuple(draws(64, 32 + 0 * n, dtype=torch.float16) * (n + 1) / 4 for n in range(3))


RIGHT = {
    "row_sum": Subject("row_sum", 3, lambda: (draws(3, 1024),), lambda x: x.sum(1), (1024,)),
    "row_sum, one warp": Subject("row_sum", 3, lambda: (draws(3, 256),), lambda x: x.sum(1), (256,), (("num_warps", 1),)),
    "row_sum, 8 warps": Subject("row_sum", 2, lambda: (draws(2, 2048),), lambda x: x.sum(1), (2048,), (("num_warps", 8),)),
    "column_sum": Subject("column_sum", 1, lambda: (draws(64, 32),), lambda x: x.sum(0), (64, 32)),
    "softmax": row("softmax"),
    "layernorm": row("layernorm"),
    "argmax": Subject("argmax", 2, lambda: (draws(2, 512),), lambda x: x.argmax(1).int(), (512,)),
    "transpose": Subject("transpose", 1, lambda: (draws(32, 64),), lambda x: x.T.contiguous(), (32, 64)),
    "transpose, half": Subject("transpose", 1, lambda: (draws(64, 64).half(),), lambda x: x.T.contiguous(), (64, 64)),
    **{f"matmul, {stages} stages": product(stages=stages) for stages in (1, 2, 3, 4)},
    "matmul, bfloat16": product(torch.bfloat16, 3),
    "matmul, tf32": product(torch.float32, 2),
    "matmul, float32": product(torch.float32, 3, "ieee"),
    "matmul, 8 warps": product(stages=3, warps=8),
    "split_k": Subject(
        "split_k", 4, lambda: (draws(32, 128).half(), draws(128, 32).half()), lambda a, b: a.float() @ b.float(),
        (128, 32, 32, 32),
    ),
    "attention": Subject(
        "attention", 1, qkv, lambda q, k, v: (q.float() @ k.float().T).softmax(1) @ v.float(), (64, 64, 32)
    ),
    "cumulative_sum": one_row("cumulative_sum", 512, lambda x: x.cumsum(0)),
    "cumulative_maximum": Subject("cumulative_maximum", 1, lambda: (draws(64, 16),), lambda x: x.cummax(0).values, (64, 16)),
    "histogram": Subject(
        "histogram", 1, lambda: (ints(512, 32),), lambda x: torch.bincount(x, minlength=32).int(), (512, 32)
    ),
    "sort": one_row("sort", 256, lambda x: x.sort().values),
    "flip": one_row("flip", 256, lambda x: x.flip(0)),
    "gather": one_row("gather", 256, lambda x, i: x[i.long()], lambda: (draws(256), ints(256, 256))),
    "interleave": one_row(
        "interleave", 256, lambda x, y: torch.stack((x, y), 1).flatten(), lambda: (draws(256), draws(256) + 1)
    ),
    "total": Subject("total", 5, lambda: (draws(5, 128),), lambda x: x.sum().view(1), (128,)),
    "largest": Subject(
        "largest", 3, lambda: (ints(384, 1000),), lambda x: x.view(-1, 8).max(0).values, (128,), low=-1
    ),
    "last_one_sums": Subject("last_one_sums", 4, lambda: (draws(4, 128),), lambda x: x.sum().view(1), (128, 4), scratch=2),
    "through_scratch": Subject(
        "through_scratch", 1, lambda: (draws(64, 32) + 9,), lambda x: x.T / x.sum(1), (64, 32, True), scratch=1
    ),
    "neighbours": Subject(
        "neighbours", 3, lambda: (draws(384),), lambda x: x + torch.arange(3).repeat_interleave(128), (128, 0)
    ),
    "add": Subject("add", 3, lambda: (draws(300), draws(300) + 1), lambda x, y: x + y, (300, True, 128)),
    "in_place": Subject("in_place", 1, lambda: (draws(128),), lambda x: x + 1, (128, 0, 128)),
}  # fmt: skip


# ---- edits ---------------------------------------------------------------------------------------


def without_barrier(which: int) -> Callable[[Taken], tuple[str, int]]:
    def edit(taken: Taken) -> tuple[str, int]:
        n = taken.barriers[which]
        return taken.without(n), n

    return edit


def replaced(pattern: str, by: str, which: int = 0) -> Callable[[Taken], tuple[str, int]]:
    """Return an edit that replaces the pattern in one of the lines that have it. which: the number
    of that line among them.
    """

    def edit(taken: Taken) -> tuple[str, int]:
        n = [n for n, line in enumerate(taken.lines) if re.search(pattern, line)][which]
        lines = taken.lines
        lines[n] = re.sub(pattern, by, lines[n])
        return "\n".join(lines), n

    return edit


def one_group_more(which: int) -> Callable[[Taken], tuple[str, int]]:
    def edit(taken: Taken) -> tuple[str, int]:
        n = [n for n, line in enumerate(taken.lines) if "cp.async.wait_group" in line][which]
        lines = taken.lines
        lines[n] = re.sub(r"\d+;", lambda match: f"{int(match[0][:-1]) + 1};", lines[n])
        return "\n".join(lines), n

    return edit


@dataclass(frozen=True)
class Fault:
    subject: Subject
    kinds: tuple[str, ...]  # one of these must be found
    line: str  # part of a Python line that the finding names; "" for the edited instruction's
    edit: Callable[[Taken], tuple[str, int]] | None = None


NO_PREDICATE = r"@%p\d+ (st\.global)"
FAULTY = {
    **{
        f"{name}, without barrier {which}": Fault(RIGHT[name], ("race",), "", without_barrier(which))
        for name, which in [
            ("row_sum", 0), ("row_sum", 1), ("row_sum, 8 warps", 0), ("column_sum", 0), ("softmax", 0), ("layernorm", 0),
            ("argmax", 0),
            ("transpose", 0), ("transpose, half", 0), ("split_k", 0), ("cumulative_sum", 0), ("histogram", 0),
            ("sort", 0), ("flip", 0), ("gather", 0), ("through_scratch", 0), ("total", 0),
        ]
    },
    **{
        f"matmul, {stages} stages, without barrier {which} of its loop": Fault(
            RIGHT[f"matmul, {stages} stages"], ("race", "async"), "", without_barrier(max(stages - 2, 0) + which)
        )  # earlier barriers are in the prologue, which fills new slots: test_barriers.py
        for stages in (1, 2, 3, 4)
        for which in (0, 1)
    },
    **{
        f"matmul, {stages} stages, one group more": Fault(
            RIGHT[f"matmul, {stages} stages"], ("async", "race"), "= tl.load(", one_group_more(0)
        )
        for stages in (2, 3, 4)
    },
    "attention, without its first barrier": Fault(RIGHT["attention"], ("race",), "", without_barrier(0)),
    "row_sum, a lane not in the mask": Fault(
        RIGHT["row_sum"], ("mask",), "tl.sum", replaced(r"(shfl.*), -1;", r"\1, 0x7fffffff;")
    ),
    "softmax, stores without predicate": Fault(
        RIGHT["softmax"], ("outside", "race"), "tl.store", replaced(NO_PREDICATE, r"\1", -1)
    ),
    "add, stores without predicate": Fault(RIGHT["add"], ("outside",), "tl.store", replaced(NO_PREDICATE, r"\1")),
    "transpose, a load beyond the shared memory": Fault(
        RIGHT["transpose"], ("outside",), "tl.store", replaced(r"(ld\.shared.*\[%r\d+)(\+\d+)?\]", r"\1+8192]")
    ),
    "neighbours, the store one element further": Fault(
        RIGHT["neighbours"], ("outside",), "tl.store", replaced(r"(st\.global.*\[ %rd\d+ \+ )0", r"\g<1>4")
    ),
    "in_place, the load one element further": Fault(
        RIGHT["in_place"], ("race",), "", replaced(r"(ld\.global.*\[ %rd\d+ \+ )0", r"\g<1>4")
    ),
    "cumulative_sum, all lanes store": Fault(
        RIGHT["cumulative_sum"], ("race",), "tl.cumsum", replaced(r"@%p\d+ (st\.shared)", r"\1")
    ),
    "neighbours that overlap": Fault(
        Subject("neighbours", 3, lambda: (draws(512),), lambda x: x, (128, 128)), ("race",), "tl.store(out + i"
    ),
    "through_scratch without a barrier": Fault(
        Subject(
            "through_scratch", 1, lambda: (draws(64, 32) + 9,), lambda x: x.T / x.sum(1), (64, 32, False), scratch=1
        ), ("race",), "columns = tl.load(scratch",
    ),
    "add without a mask": Fault(
        Subject("add", 3, lambda: (draws(300), draws(300) + 1), lambda x, y: x + y, (300, False, 128)), ("outside",),
        "tl.store",
    ),
    "in_place, shifted": Fault(
        Subject("in_place", 1, lambda: (draws(288),), lambda x: x, (256, 32, 256)), ("race",), "tl.store"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_in_every_order(name: str):
    subject = RIGHT[name]
    taken, want = subject.taken(), subject.want(*subject.inputs())
    for seed in SEEDS:
        findings, arguments = taken.run(seed=seed, switch=0.1 * (seed % 3))
        assert not findings, "\n".join([f"seed={seed}", *map(str, findings)])
        tolerance = {"rtol": 2e-2, "atol": 2e-2} if subject.kernel in ("matmul", "split_k", "attention") else {}
        torch.testing.assert_close(arguments[subject.out], want, **tolerance)


@pytest.mark.parametrize("name", FAULTY)
def test_found_in_every_order(name: str):
    fault = FAULTY[name]
    taken = fault.subject.taken()
    text, n = fault.edit(taken) if fault.edit else (None, 0)
    for seed in SEEDS:
        findings, _ = taken.run(text, seed=seed)
        fits = [f for f in findings if f.kind.value in fault.kinds and names(f, fault)]
        assert fits, "\n".join([f"seed={seed}, edited: {taken.lines[n]}, {taken.python_text(n)}", *map(str, findings)])


def names(finding, fault: Fault) -> bool:
    """Return whether the finding names the Python line or, if none is given, lines of the
    kernel.
    """
    code, first = inspect.getsourcelines(getattr(kernels, fault.subject.kernel).fn)
    sites = [site for site in finding.sites if site.file == kernels.__file__ and first <= site.line < first + len(code)]
    return len(sites) == len(finding.sites) and any(fault.line in site.text for site in sites)


def test_the_battery_is_large_and_half_of_it_faulty():
    assert len(RIGHT) >= 30 and len(FAULTY) >= 30
