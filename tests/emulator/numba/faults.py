"""Edits of the correct kernels of test_battery.py that make them faulty, with the expected
findings.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.emulator.numba.subjects import RIGHT, Subject


@dataclass(frozen=True)
class Fault:
    """A kernel after an edit.

    kinds: the first kind is found in every order, with all these parts of lines; the others may be
    found too.
    """

    subject: Subject
    old: str
    new: str
    kinds: tuple[str, ...]
    lines: tuple[str, ...]
    of: str = ""  # the edited function, if it is not the kernel

    def kernel(self) -> Any:
        return edited(*self.edit)[self.subject.kernel]

    def text(self) -> str:
        """Return the text of the whole module."""
        return edited_text(*self.edit)

    @property
    def edit(self) -> tuple[ModuleType, str, str, str]:
        return self.subject.module, self.of or self.subject.kernel, self.old, self.new


def edited(module: ModuleType, function: str, old: str, new: str) -> dict[str, Any]:
    """Return the names of a module after an edit of one function, which moves no line."""
    namespace = {"__name__": module.__name__, "__file__": module.__file__}
    exec(compile(edited_text(module, function, old, new), module.__file__, "exec"), namespace)
    return namespace


def edited_text(module: ModuleType, function: str, old: str, new: str) -> str:
    source = inspect.getsource(getattr(module, function).py_func)
    assert source.count(old) == 1, f"{function} has {source.count(old)} times {old!r}"
    assert old.count("\n") == new.count("\n")
    return Path(module.__file__).read_text().replace(source, source.replace(old, new))


def fault(kernel: str, old: str, new: str, kinds: str, *lines: str, of: str = "", **changed: Any) -> Fault:
    return Fault(replace(RIGHT[kernel], **changed), old, new, tuple(kinds.split()), lines, of)


def without_barrier(
    kernel: str, *lines: str, before: str = "", after: str = "", by: str = "pass", of: str = ""
) -> Fault:
    """Return a fault in which the barrier between these texts is missing.

    A thread may then read memory that is not yet written.
    """
    return fault(
        kernel, f"{before}cuda.syncthreads(){after}", f"{before}{by}{after}", "race uninitialised", *lines, of=of
    )


BARRIERS = {
    "reverse": without_barrier("reverse", "tile[t] =", "tile[63 - t]"),
    "reverse, a barrier of warps": without_barrier("reverse", "tile[t] =", "tile[63 - t]", by="cuda.syncwarp()"),
    "reverse, a barrier for half of the block": fault(
        "reverse", "    cuda.syncthreads()", "    if t < 32: cuda.syncthreads()", "race uninitialised", "tile[t] =",
        "tile[63 - t]"
    ),
    "reverse_rows": without_barrier("reverse_rows", "tile[t] =", "tile[n - 1 - t]"),
    "transpose": without_barrier("transpose", "= x[i, j]", "out[column, row]"),
    "transpose, a barrier for those inside": fault(
        "transpose", "    cuda.syncthreads()", "        cuda.syncthreads()", "race uninitialised", "= x[i, j]",
        "out[column, row]"
    ),
    "stencil": without_barrier("stencil", "tile[t + 1] =", "out[i] ="),
    "life": without_barrier("life", "tile[a, b] =", "count += tile["),
    "block_sum, one barrier for all steps": fault(
        "block_sum", "while step > 0:\n        cuda.syncthreads()", "cuda.syncthreads()\n    while step > 0:\n"[:-1],
        "race", "tile[t] += tile[t + step]",
    ),
    "block_sum, the last warp goes on alone": without_barrier(
        "block_sum", "tile[t] += tile[t + step]", by="cuda.syncthreads() if step > 16 else None"
    ),
    "softmax, the tile is reused at once": without_barrier(
        "softmax", "largest = max(largest, tile[k])", "tile[t] = total", before="tile[k])\n    ", after="\n    total"
    ),
    "softmax, a barrier for some": fault(
        "softmax", "tile[k])\n    cuda.syncthreads()\n    total", "tile[k])\n    if t < 40: cuda.syncthreads()\n    total",
        "barrier race uninitialised deadlock", "cuda.syncthreads()",
    ),
    "scan, no barrier between the steps": without_barrier("scan", "tile[1 - now, t] = value", before="distance\n        "),
    "scan, in place": fault(
        "scan", "[1 - now, t] = value\n        now, distance = 1 - now", "[now, t] = value\n        now, distance = now",
        "race", "value += tile", "tile[1 - now, t] = value",
    ),
    "bitonic, one barrier for all steps of a size": fault(
        "bitonic", "while step > 0:\n            cuda.syncthreads()", "cuda.syncthreads()\n        while step > 0:",
        "race", "tile[t], tile[other] = b, a",
    ),
    "bitonic, the result is read at once": without_barrier(
        "bitonic", "tile[t], tile[other]", "out[t] =", before="2\n    ", after="\n    out"
    ),
    "settle, each warp votes for itself": fault(
        "settle", "cuda.syncthreads_or(swap)", "cuda.any_sync(0xFFFFFFFF, swap)", "race", "tile[t]"
    ),
    "counted, some threads do not count": fault(
        "counted", "cuda.syncthreads_count(positive)", "cuda.syncthreads_count(positive) if t < 90 else 0",
        "barrier deadlock",
        "cuda.syncthreads_count",
    ),
    "matmul, the first": without_barrier("matmul", "total += left[ti, k] * right[k, tj]", after="\n        for"),
    "matmul, the second": without_barrier("matmul", "total += left[ti, k] * right[k, tj]", after="\n    if"),
    "dynamic_matmul": without_barrier("dynamic_matmul", "total += left[ti * width + k]", after="\n    if"),
    "fourier, a barrier of warps between steps": without_barrier(
        "fourier", "tile[at]", after="\n        if", by="cuda.syncwarp()"
    ),
    "warp_sum": without_barrier("warp_sum", "parts[t // 32] = value", "out["),
    "histogram, counted before the bins are zero": without_barrier(
        "histogram", "tile[t] = 0", "cuda.atomic.add(tile", before="tile[t] = 0\n    "
    ),
    "histogram, read while others count": without_barrier(
        "histogram", "cuda.atomic.add(tile", "cuda.atomic.add(out, t", before="1)\n    "
    ),
    "last_block_sums": without_barrier(
        "last_block_sums", "is_last[0] = ", "if is_last[0]", before="1\n    "
    ),
    "scaled, in a function": without_barrier("scaled", "tile[at] = value", "low, high", of="stored"),
    "scaled, a function for some": fault(
        "scaled", "    stored(", "    if t < columns: stored(", "race uninitialised", "tile[at] = value", "low, high"
    ),
    "shift": without_barrier("shift", "value = x[t + 1]", "x[t] = value"),
    "two_halves": without_barrier("two_halves", "tile[k % 2, lane] =", "out[k - 1"),
    "two_halves, one tile": fault(
        "two_halves", "                tile[k % 2", "                tile[k // 4", "race uninitialised",
        "tile[k % 2, lane] =", "out[k - 1",
    ),
}  # fmt: skip

WARPS = {
    "warp_tile": fault("warp_tile", "cuda.syncwarp()", "pass", "race uninitialised", "tile[warp, lane] =", "out[t] ="),
    "half_warps, the other half is read": fault(
        "half_warps", "t ^ 15", "t ^ 31", "race uninitialised", "tile[t] =", "out[t] ="
    ),
    "half_warps, lanes outside of the mask": fault(
        "half_warps", "cuda.syncwarp(0x0000FFFF)", "cuda.syncwarp(0x000000FF)", "mask race deadlock uninitialised",
        "cuda.syncwarp(0x0000FFFF)",
    ),
    "warp_sum, lanes outside of the mask": fault("warp_sum", "0xFFFFFFFF", "0x0000FFFF", "mask deadlock", "shfl_down_sync"),
    "compact, a lane outside of the mask": fault(
        "compact", "cuda.ballot_sync(0xFFFFFFFF", "cuda.ballot_sync(0x7FFFFFFF", "mask deadlock", "cuda.ballot_sync"
    ),
    "compact, every lane begins at 0": fault(
        "compact", "cuda.shfl_sync(0xFFFFFFFF, first, 0)", "first", "race", "out[first +"
    ),
    "alike, lanes outside of the mask": fault(
        "alike", "any_sync(0xFFFFFFFF", "any_sync(0xFFFF0000", "mask deadlock", "cuda.match_any_sync"
    ),
}  # fmt: skip

ATOMICS = {
    "histogram": fault("histogram", "cuda.atomic.add(tile, x[i], 1)", "tile[x[i]] += 1", "race", "cuda.atomic.add(tile"),
    "column_sums": fault(
        "column_sums", "cuda.atomic.add(out, j, x[i, j])", "out[j] += x[i, j]", "race", "cuda.atomic.add(out, j"
    ),
    "extremes": fault("extremes", "cuda.atomic.max(out, 0, x[i])", "out[0] = max(out[0], x[i])", "race", "cuda.atomic.max"),
    "extremes, a plain look first": fault(
        "extremes", "        cuda.atomic.min(", "        if x[i] < out[1]: cuda.atomic.min(", "race", "cuda.atomic.min"
    ),
    "flags": fault("flags", "cuda.atomic.or_(out, 0, bit)", "out[0] |= bit", "race", "cuda.atomic.or_"),
    "product, a plain read first": fault("product", "cuda.atomic.add(out, 0, 0)", "out[0]", "race", "old = cuda.atomic.add"),
    "tickets, a ring that is too small": fault("tickets", "(count, 0, 127)", "(count, 0, 63)", "race", "out[turn] ="),
    "last_block_sums, parts read plainly": fault(
        "last_block_sums", "cuda.atomic.add(parts, k, 0.0)", "parts[k]", "race", "atomic.add(parts, block",
        "atomic.add(parts, k"
    ),
    "handed_over": fault(
        "handed_over", "cuda.atomic.exch(flag, 0, x[0] + 1)", "flag[0] = x[0] + 1", "race", "cuda.atomic.exch",
        "value = cuda.atomic.add",
    ),
}  # fmt: skip

PLACES = {
    "stencil, no guard": fault("stencil", "    if i < x.size:\n", "    if i < 192:\n", "outside", "out[i] ="),
    "stencil, no right edge": fault("stencil", "    if t == 63:\n", "    if t == 64:\n", "uninitialised", "out[i] ="),
    "medians, a guard that is one too far": fault("medians", "x.size - 2", "x.size - 1", "outside", "x[i - 2 + k]"),
    "box, one axis without a guard": fault("box", " and k < x.shape[2]", "", "race outside", "out[k, j, i]"),
    "rows_of_blocks, blocks that overlap": fault(
        "rows_of_blocks", "cuda.blockIdx.x * cuda.blockDim.x", "cuda.blockIdx.x * 44", "race", "out[i, j] ="
    ),
    "rows_of_blocks, a clamp instead of a guard": fault(
        "rows_of_blocks", "    if i < x.shape[0]:\n", "    for i in (min(i, x.shape[0] - 1),):\n", "race", "out[i, j] ="
    ),
    "axpy, each block does all": fault("axpy", "cuda.gridsize(1)", "cuda.blockDim.x", "race", "out[i] ="),
    "reverse_rows, a tile that is too short": fault(
        "reverse_rows", "array(64, float64)", "array(40, float64)", "outside", "tile[t] =", "tile[n - 1 - t]"
    ),
    "reverse_rows, what returned threads did not store": fault(
        "reverse_rows", "tile[n - 1 - t]", "tile[63 - t]", "uninitialised", "tile[n - 1 - t]"
    ),
    "half_dot, one element more": fault("half_dot", "range(32)", "range(33)", "outside", "tile[k]"),
    "smooth, beyond the constants": fault("smooth", "weights[k]", "weights[i % 4]", "outside", "weights[k]"),
    "dynamic_matmul, elements instead of bytes": fault(
        "dynamic_matmul", "total = float32(0)", "total = float32(0)", "outside", "right[ti * width + tj] =", shared=2 * 64
    ),
    "two_types, at one place": fault(
        "two_types", "[128:192]", "[0:64]", "race outside uninitialised", "values[t] =", "order[t] ="
    ),
    "modes, too few counts": fault("modes", "local.array(9", "local.array(8", "outside", "counts["),
    "whole_words, at odd places": fault("whole_words", "x[4:]", "x[2:-2]", "misaligned", "words[i]"),
}  # fmt: skip

FAULTY = {
    f"{group}: {name}": case
    for group, cases in {"barriers": BARRIERS, "warps": WARPS, "atomics": ATOMICS, "places": PLACES}.items()
    for name, case in cases.items()
}
