"""The keys that a bias hides by -inf, or by False, and whether it can hide all keys of a query.

Every mask leaves one range of keys visible in each row of the bias; `first_and_window` also leaves
the first keys visible. `start`, which is drawn for each batch and head of the bias, sets the length
of the range. In each row a longer range contains every shorter one, so the shortest decides whether
a row may be empty.
"""

from __future__ import annotations

import math

import torch

from flash_attest.impls.contract.tensors import Inputs
from flash_attest.oracle import ALIGNMENTS
from flash_attest.properties.cases.case import ADDED, BIAS_MASKS, OF_NUMBERS, Case
from flash_attest.properties.cases.features import mask_of, seen_of
from flash_attest.properties.cases.random_tensors import RandomTensors

FIRST = 4  # the largest number of first keys that first_and_window leaves visible in each row
HIDING = ("right", "left", "window", "first_and_window", "dead_row")  # the masks with -inf


def masks_of(kind: str) -> tuple[str, ...]:
    """Return the masks that a bias of this kind may have."""
    masks = tuple(mask for mask in BIAS_MASKS if kind in ADDED or mask not in OF_NUMBERS)
    return masks if kind.endswith("matrix") else tuple(mask for mask in masks if mask != "dead_row")


def hidden_entries(bias: torch.Tensor) -> torch.Tensor:
    """Return which entries of a bias hide their key: -inf, or False in a boolean mask."""
    return ~bias if bias.dtype == torch.bool else bias == -math.inf


def hidden_by_bias(case: Case, random: RandomTensors) -> torch.Tensor | None:
    """Return which entries of the bias hide their key, as a broadcastable bool; None if none do."""
    kind, (batch, nheads, rows, keys) = case.bias_mask, case.bias_shape
    if kind in ("none", "alibi") or keys == 0 or rows == 0:
        return None
    j, i = torch.arange(keys, device=random.device), torch.arange(rows, device=random.device)
    # A finite number instead of -inf may "hide" every key, as the row is not empty then. It does so
    # in one head of four, or more.
    least = -1 - keys // 3 if kind == "finite" else 0
    start = random.integers((batch, nheads, 1, 1), least, keys - 1).clamp(min=-1)
    if kind == "dead_row":
        dead = random.integers((batch, nheads, 1, 1), 0, rows - 1)
        hidden = (i[:, None] == dead).expand(batch, nheads, rows, keys)
    else:
        first, last = _left(case, i[:, None], start)
        hidden = (j < first) | (j > last)
    if kind == "first_and_window":
        hidden = hidden & (j >= random.integers((batch, nheads, 1, 1), 1, FIRST))
    if case.bias_keeps_key:
        for key in _kept(case, i):
            hidden = hidden & (j != key[:, None])
    return hidden


def may_have_empty_rows(case: Case, alignment: str) -> bool:
    """Return whether position and bias together hide all keys of a query for some seed."""
    mask = mask_of(case, alignment)
    hides = case.bias is not None and case.bias_mask in HIDING
    if mask.has_empty_rows(case.seqlen_q, case.seqlen_k) or case.hidden == "dead_rows" or (case.hidden and hides):
        return True
    if not hides:
        return False
    queries = torch.arange(case.seqlen_q)
    first, last = mask.bounds(queries, case.seqlen_q, case.seqlen_k)
    last = last.clamp(max=case.seqlen_k - 1)
    row = queries if case.bias_has_rows else torch.zeros_like(queries)
    hidden = torch.ones_like(queries, dtype=torch.bool)
    if case.bias_mask != "dead_row":
        shortest = case.seqlen_k - 1 if case.bias_mask == "left" else 0
        least, most = _left(case, row, torch.tensor(shortest))
        hidden = torch.minimum(last, most) < torch.maximum(first, least)
        if case.bias_mask == "first_and_window":
            hidden &= first > 0  # key 0 is visible in each row
    if case.bias_keeps_key:
        for key in _kept(case, row):
            hidden &= (key < first) | (key > last)
    return bool(hidden.any())


def rows_without_keys(case: Case, alignment: str, x: Inputs) -> torch.Tensor:
    """Return bool (b, h, sq): which queries see no key, by position, bias and hidden keys."""
    seen = seen_of(case, alignment, x)
    if x.bias is not None:
        seen = seen & ~hidden_entries(x.bias)
    return ~seen.any(dim=-1).expand(case.batch, case.nheads, case.seqlen_q)


def _left(case: Case, row: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first and last visible key of each row under a mask, which may be out of range."""
    rows, keys = case.bias_shape[2:]
    if case.bias_mask == "left":
        return start, torch.full_like(row, keys - 1)
    if case.bias_mask in ("right", "finite"):
        return torch.zeros_like(row), start
    # With a window each query has its own key, aligned bottom right.
    own = row + (keys - rows if case.bias_has_rows else keys - 1)
    return own - start, own


def _kept(case: Case, row: torch.Tensor) -> list[torch.Tensor]:
    """Return, for each alignment, the last key that a bias row's first query sees by position."""
    bounds = (mask_of(case, alignment).bounds(row, case.seqlen_q, case.seqlen_k) for alignment in ALIGNMENTS)
    return [last.clamp(0, max(case.seqlen_k - 1, 0)) for _, last in bounds]
