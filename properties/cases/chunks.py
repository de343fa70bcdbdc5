"""Chunks of a case's queries, each with the keys that it has in a chunked prefill or a decode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.cases.fitting import MULTIPLES
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.trial import Trial

TRIES = 6  # random chunks; a few more begin with the first query, or end with the last


@dataclass(frozen=True)
class Chunk:
    """Some queries of a case, with the first keys, in a call of their own.

    case: the call. first: its first query, of the whole case.
    """

    case: Case
    first: int

    @property
    def rows(self) -> slice:
        """The queries of the whole case."""
        return slice(self.first, self.first + self.case.seqlen_q)

    def inputs(self, x: Inputs) -> Inputs:
        """Return the chunk's part of the inputs of the whole case."""
        keys = slice(self.case.seqlen_k)
        parts = {"q": x.q[:, self.rows], "dout": x.dout[:, self.rows], "k": x.k[:, keys], "v": x.v[:, keys]}
        if x.bias is not None:
            parts["bias"] = (x.bias if x.bias.shape[2] == 1 else x.bias[:, :, self.rows])[..., keys]
        if x.dlse is not None:
            parts["dlse"] = x.dlse[..., self.rows]
        return x.with_(**parts)

    def __str__(self) -> str:
        keys = f"from keys 0 to {self.case.seqlen_k - 1}" if self.case.seqlen_k else "without keys"
        if self.case.seqlen_q == 1:
            return f"computed alone, {keys}"
        return f"computed with queries {self.first} to {self.rows.stop - 1} {keys}"


def chunks_of(trial: Trial) -> list[Chunk]:
    """Return a chunk of one query, and one of several, as far as the implementation takes them.

    The keys that a query sees are those of the whole case.
    """
    visible, found = trial.visible(), {}
    for first, end in _ranges(trial):
        one = end - first == 1
        if one not in found and (chunk := _chunk(trial, visible, first, end)) is not None:
            found[one] = chunk
    return [found[one] for one in (False, True) if one in found]


def _ranges(trial: Trial) -> Iterator[tuple[int, int]]:
    """Yield (first query, end) of chunks that are not the whole case.

    Some have lengths that are multiples, as an implementation may take nothing else.
    """
    seqlen_q, random = trial.case.seqlen_q, trial.random("chunks")
    cuts = [random.number(1, seqlen_q - 1) for _ in range(2 * TRIES)]
    cuts += [n for multiple in MULTIPLES for n in (cuts[0] - cuts[0] % multiple, multiple) if 0 < n < seqlen_q]
    yield from ((min(pair), max(pair)) for pair in zip(cuts[::2], cuts[1::2], strict=False) if pair[0] != pair[1])
    for cut in cuts:
        yield from ((0, cut), (cut, seqlen_q), (cut, cut + 1))


def _chunk(trial: Trial, visible: torch.Tensor, first: int, end: int) -> Chunk | None:
    """Return the chunk, with as few keys as possible; None if no call has its mask."""
    case = trial.case
    of_whole = visible[first:end]
    for seqlen_k in dict.fromkeys((max(0, case.seqlen_k - case.seqlen_q + end), case.seqlen_k)):
        part = case.but(seqlen_q=end - first, seqlen_k=seqlen_k)
        seen = mask_of(part, trial.impl.causal_alignment).visible(end - first, seqlen_k, device=trial.device)
        same = bool((seen == of_whole[:, :seqlen_k]).all()) and not bool(of_whole[:, seqlen_k:].any())
        if same and unsupported(trial.impl, part) is None:
            return Chunk(part, first)
    return None
