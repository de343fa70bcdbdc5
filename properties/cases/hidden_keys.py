"""Hidden keys: which ones a case hides by value, drawn as a pattern, in the notation of kernels.

documents   the keys are cut into documents, and a query sees those of the document of its own key
blocks      random blocks are visible
tree        a query sees all keys before the last seqlen_q ones, and of those its ancestors in a
            random tree, as in speculative decoding
topk        each query sees the same number of random keys, or a few less
dead_rows   random keys or blocks, and some queries see none

Each batch and each head has its own pattern: each query head in a block mask, each key head in
lists of keys. Except with dead_rows, a query sees a key whenever it does by position, under every
alignment.
"""

from __future__ import annotations

import torch

from flash_attest.oracle import ALIGNMENTS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.cases.random_tensors import RandomTensors

DENSITIES = (0.25, 0.5, 0.75)  # the share of visible blocks, or of visible keys with dead_rows
LENGTHS = (3, 17, 70)  # the mean length of a document in keys; in blocks it is 2
SLACK = 2  # slots of a list for keys that are visible under one alignment alone


def shown_to(case: Case, device: str | torch.device) -> dict[str, torch.Tensor]:
    """Return block_mask or kv_indices of a case, as fields of Inputs; nothing without hidden keys.

    The shapes do not depend on the seed.
    """
    if case.hidden is None:
        return {}
    random = RandomTensors(case, device, "hidden")
    heads = case.nheads if case.hidden_block else case.nheads_k
    seen = _drawn(case, random, (case.batch, heads, case.seqlen_q, case.seqlen_k))
    if case.hidden != "dead_rows":
        for visible in _by_position(case, device):
            first = visible & (visible.cumsum(1) == 1)  # the first key that each query sees by position
            seen = seen | (first & ~(seen & visible).any(-1, keepdim=True))
    if case.hidden_block:
        return {"block_mask": in_blocks(seen, case.hidden_block)}
    return {"kv_indices": in_lists(seen, _slots(case), random)}


def in_blocks(seen: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """seen: bool (b, h, sq, sk) -> bool (b, h, blocks of queries, blocks of keys).

    A block is visible if any of its pairs is.
    """
    (rows, columns), (batch, heads, seqlen_q, seqlen_k) = block, seen.shape
    padded = torch.nn.functional.pad(seen, (0, -seqlen_k % columns, 0, -seqlen_q % rows))
    return padded.view(batch, heads, -(-seqlen_q // rows), rows, -(-seqlen_k // columns), columns).any(5).any(3)


def in_lists(seen: torch.Tensor, slots: int, random: RandomTensors) -> torch.Tensor:
    """seen: bool (b, hk, sq, sk) -> int32 (b, sq, hk, slots), the visible keys in any order, then
    -1.
    """
    order = random.uniform(tuple(seen.shape), 0, 1).masked_fill(~seen, 2.0).argsort(-1)
    listed = torch.where(seen.gather(-1, order), order, -1)
    missing = max(0, slots - listed.shape[-1])
    listed = torch.nn.functional.pad(listed, (0, missing), value=-1)[..., :slots]
    return listed.transpose(1, 2).to(torch.int32).contiguous()


def _drawn(case: Case, random: RandomTensors, shape: tuple[int, int, int, int]) -> torch.Tensor:
    """Return a pattern bool (b, heads, sq, sk), before keys are added to rows without any."""
    batch, heads, seqlen_q, seqlen_k = shape
    if not seqlen_q or not seqlen_k:
        return torch.zeros(shape, dtype=torch.bool, device=random.device)
    i, j = torch.arange(seqlen_q, device=random.device), torch.arange(seqlen_k, device=random.device)
    own = i + seqlen_k - seqlen_q
    if case.hidden == "documents":
        mean = LENGTHS[random.number(0, len(LENGTHS) - 1)]
        begins = random.uniform((batch, heads, seqlen_k), 0, 1) < 1 / mean
        if case.hidden_block:
            begins = (random.uniform((batch, heads, seqlen_k), 0, 1) < 0.5) & (j % case.hidden_block[1] == 0)
        document = begins.cumsum(-1)
        return document[:, :, own.clamp(0, seqlen_k - 1), None] == document[:, :, None]
    if case.hidden == "tree":
        seen = torch.zeros(shape, dtype=torch.bool, device=random.device)
        seen[..., : max(0, seqlen_k - seqlen_q)] = True
        parents = (random.uniform((seqlen_q,), 0, 1) * (i + 1)).long() - 1  # -1: a root
        for query, parent in enumerate(parents.tolist()):
            if parent >= 0:
                seen[:, :, query] |= seen[:, :, parent]
            if own[query] >= 0:
                seen[:, :, query, own[query]] = True
        return seen
    if case.hidden == "topk":
        return _largest(case, random, shape)
    density = DENSITIES[random.number(0, len(DENSITIES) - 1)]
    rows, columns = case.hidden_block or (1, 1)
    units = (batch, heads, -(-seqlen_q // rows), -(-seqlen_k // columns))
    seen = random.uniform(units, 0, 1) < density
    if case.hidden == "dead_rows":
        dead = random.uniform((*units[:3], 1), 0, 1) < 0.25
        dead[:, :, random.number(0, units[2] - 1)] = True
        seen &= ~dead
    return seen.repeat_interleave(rows, 2).repeat_interleave(columns, 3)[:, :, :seqlen_q, :seqlen_k]


def _largest(case: Case, random: RandomTensors, shape: tuple[int, int, int, int]) -> torch.Tensor:
    """Return the keys with the largest of random numbers: topk of them in half of the rows, and 1
    or 2 less in others. Keys that are visible under every alignment come first.
    """
    of_every = torch.stack(_by_position(case, random.device)).all(0)
    rank = (random.uniform(shape, 0, 1) + of_every.float()).argsort(-1, descending=True).argsort(-1)
    fewer = random.integers((*shape[:3], 1), -2, 2).clamp(min=0)
    return rank < (_topk(case) - fewer).clamp(min=1)


def _topk(case: Case) -> int:
    """Return how many keys each query sees with hidden=topk: a quarter to all of them."""
    quarters = 1 + (case.seqlen_q + case.seqlen_k + case.nheads) % 4
    return max(1, case.seqlen_k * quarters // 4)


def _slots(case: Case) -> int:
    """Return the length of lists of keys."""
    if case.hidden != "topk" or not case.seqlen_k:
        return max(1, case.seqlen_k)
    visible = torch.stack(_by_position(case, "cpu"))
    apart = visible.any(-1).any(0) & ~visible.all(0).any(-1)  # rows that see no key under every alignment
    return _topk(case) + SLACK * bool(apart.any())


def _by_position(case: Case, device: str | torch.device) -> list[torch.Tensor]:
    """Return bool (sq, sk) for each alignment: which keys each query sees by position."""
    lengths = (case.seqlen_q, case.seqlen_k)
    return [mask_of(case, alignment).visible(*lengths, device=device) for alignment in ALIGNMENTS]
