"""Words and small tables for messages: the positions of wrong elements in a tensor."""

from __future__ import annotations

import torch

from flash_attest.impls.contract.tensors import TABLES
from flash_attest.properties.trial import Trial

AXES = {  # the name of each dimension of a tensor
    **dict.fromkeys(("out", "dq", "q", "dout", "out*keys"), ("b", "i", "h", "d")),
    **dict.fromkeys(("dk", "dv", "k", "v"), ("b", "j", "h", "d")),
    **dict.fromkeys(("lse", "dlse", "sum of dbias"), ("b", "h", "i")),
    **dict.fromkeys(("sinks", "dsink", "sum of dbias and dsink"), ("h",)),
    **dict.fromkeys(("<q,dq>-<k,dk>", "<v,dv>-<out,dout>"), ("b", "h")),
    "sum of dk": ("b", "h", "d"),
    **dict.fromkeys(("dbias", "bias", "block_mask"), ("b", "h", "i", "j")),
    "kv_indices": ("b", "i", "h", "slot"),
    **dict.fromkeys(TABLES, ("b",)),
    "block_table": ("b", "column"),
    **dict.fromkeys(("k_new", "v_new"), ("b", "j", "h", "d")),
    "out_parts": ("part", "b", "i", "h", "d"),
    "lse_parts": ("part", "b", "h", "i"),
}
ROWS, PAGES, SLOTS = ("row", "h", "d"), ("page", "j", "h", "d"), ("slot", "j", "h", "d")
BUFFERS = {  # the same for inputs of a form that stores sequences in another way
    "varlen": dict.fromkeys(("q", "k", "v", "dout"), ROWS) | {"dlse": ("h", "row")},
    "paged": {"q": ROWS, "k": PAGES, "v": PAGES},
    "cache": {"k": SLOTS, "v": SLOTS},
}
PLURAL = {"query": "queries", "key": "keys"}
GROUPS, LEAST_GROUPS = (2, 4, 8, 16, 32, 64, 128), 2  # sizes; how many whole groups show a pattern
LONG = {"b": "batch", "h": "head", "i": "query", "j": "key", "d": "column"}  # other names are words


def plural(n: int, word: str, words: str = "") -> str:
    """3, "key" -> "3 keys"."""
    return f"{n} {word}" if n == 1 else f"{n} {words or word + 's'}"


def share(marked: torch.Tensor) -> str:
    """bool tensor -> "3 of 240 elements"."""
    return f"{int(marked.sum())} of {plural(marked.numel(), 'element')}"


def number(value: float, beside: float | None = None) -> str:
    """Return a float in 6 digits, or in enough digits to distinguish it from `beside`."""
    for digits in (6, 9, 17):
        text = f"{value:.{digits}g}"
        if beside is None or value == beside or text != f"{beside:.{digits}g}":
            break
    return text


def names_of_axes(name: str, form: str = "dense") -> tuple[str, ...] | None:
    """Return the name of each dimension of a tensor, which is an input if the form is not dense."""
    return BUFFERS.get(form, {}).get(name) or AXES.get(name)


def element_at(name: str, at: tuple[int, ...], form: str = "dense") -> str:
    """("out", (0, 64, 0, 3)) -> "out[b=0 i=64 h=0 d=3]"."""
    axes = names_of_axes(name, form) or tuple("abcdefgh"[: len(at)])
    return f"{name}[{' '.join(f'{a}={n}' for a, n in zip(axes, at, strict=True))}]"


def place_of(index: torch.Tensor, shape: torch.Size) -> tuple[int, ...]:
    """Return where an element is, given its number from argmax().

    torch.unravel_index imports sympy, which takes three seconds in each judging process.
    """
    rest, place = int(index), []
    for n in reversed(shape):
        rest, i = divmod(rest, n)
        place.insert(0, i)
    return tuple(place)


def where(trial: Trial, name: str, bad: torch.Tensor, is_what: str = "wrong", form: str = "dense") -> str:
    """Return lines that say which batches, heads, queries, keys and columns are wrong.

    If the implementation declares its tile, the lines count by tile, unless all tiles are alike.
    form: the form of a tensor that is handed over; outputs are always dense.
    """
    axes = names_of_axes(name, form)
    if axes is None or bad.dim() != len(axes):
        return f"wrong: {int(bad.sum())} of {bad.numel()} elements"
    if bad.numel() == 1:
        return ""
    lines = []
    for dim, axis in enumerate(axes):
        n = bad.shape[dim]
        along = bad.transpose(0, dim).reshape(n, -1).any(dim=1).nonzero().flatten().tolist()
        if n > 1 or axis in "ij":
            lines.append(f"{LONG.get(axis, axis):7} {_all_or_ranges(along, n)}")
    lines = [f"{is_what} in"] + ["  " + line for line in lines]
    for axis, block in zip("ij", trial.impl.tile or (), strict=False):
        if axis in axes and bad.shape[axes.index(axis)] > block and not _each_is_wrong(bad, axes.index(axis)):
            lines += _tile_table(bad, axes.index(axis), LONG[axis], "MN"["ij".index(axis)], block)
    return "\n".join(lines)


def _each_is_wrong(bad: torch.Tensor, dim: int) -> bool:
    return bool(bad.transpose(0, dim).reshape(bad.shape[dim], -1).any(dim=1).all())


def ranges(numbers: list[int]) -> str:
    """[1, 2, 3, 7] -> "1..3 7", cut after eight pieces."""
    pieces: list[list[int]] = []
    for n in numbers:
        if pieces and n == pieces[-1][1] + 1:
            pieces[-1][1] = n
        else:
            pieces.append([n, n])
    text = [str(a) if a == b else f"{a}..{b}" for a, b in pieces[:8]]
    return " ".join(text) + (" ..." if len(pieces) > 8 else "")


def _all_or_ranges(wrong: list[int], n: int) -> str:
    if len(wrong) == n and n > 1:
        return f"all of 0..{n - 1}"
    return f"{_every(wrong, n) or ranges(wrong)}   of 0..{n - 1}"


def _every(wrong: list[int], n: int) -> str:
    """Return in words which positions in groups of a power of two are wrong; "" if groups differ.

    [0, 1, 2, 4, 5, 6, 8], 9 -> "0..2 in each group of 4". The last group may be partial.
    """
    for size in GROUPS:
        if n < LEAST_GROUPS * size:
            break
        first = [i for i in wrong if i < size]
        if wrong == [i for i in range(n) if i % size in first]:
            return f"{ranges(first)} in each group of {size}"
    return ""


def _tile_table(bad: torch.Tensor, dim: int, word: str, letter: str, block: int) -> list[str]:
    n = bad.shape[dim]
    rows = bad.transpose(0, dim).reshape(n, -1).any(dim=1)
    lines = [f"{word} tile   {PLURAL[word]:10} BLOCK_{letter}={block:<5} wrong"]
    tiles = range(0, n, block)
    shown = tiles if len(tiles) <= 8 else [*tiles[:3], *tiles[-4:]]
    for start in shown:
        stop = min(start + block, n)
        kind = "full" if stop - start == block else "partial"
        span = f"{start}..{stop - 1}"
        lines.append(
            f"{start // block:<{len(word) + 7}} {span:10} {kind:13} {int(rows[start:stop].sum())} of {stop - start}"
        )
    if len(shown) < len(tiles):
        lines.insert(4, "...")
    return lines
