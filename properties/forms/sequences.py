"""The sequences of a call: those of the case, and the neighbours that are not judged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import NamedTuple

import torch

from flash_attest.impls.contract.arguments import rounded_up
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.fitting import MULTIPLES
from flash_attest.properties.cases.support import unsupported

FEW = 4  # queries and keys of a short neighbour, at most
LONGEST = 2048  # no neighbour has twice as many queries, or keys, as a case with more
MOST_WORDS = 12  # lengths in a message


class Sequence(NamedTuple):
    """One sequence of a call. judged: whether it is one of the case."""

    seqlen_q: int
    seqlen_k: int
    judged: bool = False


def random_of(case: Case, word: str) -> Random:
    """Return random numbers that depend on the case's seed and neighbours alone."""
    return Random(f"{word} {case.seed} {case.neighbours}")


def sequences_of(impl: Implementation, case: Case, *, fixed_q: bool = False) -> list[Sequence]:
    """Return the sequences in the order of the call.

    empty     one of no queries, no keys, or neither, directly before and behind each judged one
    one       one short neighbour, before or behind the judged ones
    longer    one of twice the length and one, before or behind; of few keys, if the case has many
    mixed     any of these, before and behind each judged one
    fixed_q: whether all sequences have the queries of the case. Lengths that the implementation
    does not take are rounded up to a multiple, or left out.
    """
    judged = [Sequence(case.seqlen_q, case.seqlen_k, judged=True)] * case.batch
    random = random_of(case, "neighbours")
    gaps = case.batch + 1
    if case.neighbours == "none":
        return judged
    if case.neighbours in ("one", "longer"):
        at = random.choice((0, case.batch))
        kinds = [case.neighbours if gap == at else "" for gap in range(gaps)]
    elif case.neighbours == "empty":
        first = random.randrange(len(EMPTY))
        kinds = [EMPTY[(first + gap) % len(EMPTY)] for gap in range(gaps)]
    else:
        kinds = [random.choice(("", *EMPTY, "one", "one", "longer")) for _ in range(gaps)]
        kinds[random.randrange(gaps)] = random.choice(("one", "longer"))
    result: list[Sequence] = []
    for gap, kind in enumerate(kinds):
        result += _neighbour(impl, case, kind, random, fixed_q)
        result += judged[gap : gap + 1]
    return result


EMPTY = ("no keys", "no queries", "neither")


def _neighbour(impl: Implementation, case: Case, kind: str, random: Random, fixed_q: bool) -> list[Sequence]:
    if not kind:
        return []
    wanted = random.randint(1, FEW), random.randint(1, FEW)
    if kind == "longer":
        own = case.seqlen_q, case.seqlen_k
        wanted = tuple(2 * n + 1 if n <= LONGEST else few for n, few in zip(own, wanted, strict=True))
    if kind in EMPTY:
        wanted = 0 if kind != "no keys" else wanted[0], 0 if kind != "no queries" else wanted[1]
    for seqlen_q, seqlen_k in _possible(case, *wanted, fixed_q=fixed_q):
        # Only what sequences of this length need: a neighbour has no neighbours.
        other = case.but(batch=1, seqlen_q=seqlen_q, seqlen_k=seqlen_k, neighbours="none", append=0)
        if unsupported(impl, other) is None:
            return [Sequence(seqlen_q, seqlen_k)]
    return []


def _possible(case: Case, seqlen_q: int, seqlen_k: int, *, fixed_q: bool) -> Iterator[tuple[int, int]]:
    """Yield lengths near the wanted ones, the wanted ones first."""
    for multiple in MULTIPLES:
        q = case.seqlen_q if fixed_q else rounded_up(seqlen_q, multiple)
        k = max(rounded_up(seqlen_k, multiple), appended(case))
        yield q, k
        longer = max(q, k)
        if not fixed_q:
            yield longer, longer
        yield q, max(q, k)


def appended(case: Case) -> int:
    """Return how many keys of each sequence are handed as new ones."""
    return min(case.append, case.seqlen_k)


def lengths_of(sequences: list[Sequence]) -> tuple[list[int], list[int]]:
    """Return the numbers of queries, and of keys, of the sequences of a call."""
    return [one.seqlen_q for one in sequences], [one.seqlen_k for one in sequences]


def longest_of(sequences: list[Sequence], case: Case) -> dict[str, int]:
    """Return max_seqlen_q and max_seqlen_k, which are too large by the slack of the case."""
    return {f"max_seqlen_{name}": max(n) + case.slack for name, n in zip("qk", lengths_of(sequences), strict=True)}


def starts_of(lengths: list[int]) -> torch.Tensor:
    """Return cu_seqlens, (batch + 1,) int32: where each sequence begins, and the end."""
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)


def rows_of(starts: list[int], lengths: list[int], sequences: list[Sequence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows of the judged sequences (batch, seqlen), and those of the others (n,).

    starts: the first row of each sequence; its rows lie one behind the other.
    """
    judged = [torch.arange(n) + at for at, n, one in zip(starts, lengths, sequences, strict=True) if one.judged]
    theirs = [torch.arange(n) + at for at, n, one in zip(starts, lengths, sequences, strict=True) if not one.judged]
    return torch.stack(judged), torch.cat(theirs) if theirs else torch.arange(0)


def words_of(sequences: list[Sequence], case: Case, *others: str) -> str:
    """Return the sequences in words: lengths_q 0 5* 1, lengths_k 3 9* 1 (* judged)."""

    def listed(lengths: list[int]) -> str:
        words = [f"{n}{'*' * one.judged}" for n, one in zip(lengths, sequences, strict=True)]
        return " ".join(words[:MOST_WORDS] + ["..."] * (len(words) > MOST_WORDS))

    lengths = ", ".join(f"lengths_{name} {listed(n)}" for name, n in zip("qk", lengths_of(sequences), strict=True))
    slack = [f"{case.slack} row{'s' * (case.slack != 1)} of slack"] if case.slack else []
    return ", ".join([f"{lengths} (* judged)", *others, *slack])
