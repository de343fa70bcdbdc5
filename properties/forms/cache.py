"""Cache: the keys of each sequence lie in a slot of a cache, in any order of slots."""

from __future__ import annotations

import torch

from flash_attest.impls.contract.plan import Plan
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.forms.sequences import appended, lengths_of, random_of, rows_of, sequences_of, words_of

FREE = 2  # slots that no sequence has


def cache(impl: Implementation, case: Case) -> Plan:
    """Return the plan of a call with a cache.

    Every sequence has seqlen_q queries. The last `append` keys of each are handed as new ones:
    cache_seqlens counts those before them.
    """
    sequences = sequences_of(impl, case, fixed_q=True)
    batch, new = len(sequences), appended(case)
    lengths_q, lengths_k = lengths_of(sequences)
    capacity = max(lengths_k) + case.slack
    slots = random_of(case, "slots").sample(range(batch + FREE), batch)
    q_rows, q_theirs = rows_of([b * case.seqlen_q for b in range(batch)], lengths_q, sequences)
    starts = [slot * capacity for slot in slots]
    k_rows, k_theirs = rows_of(starts, lengths_k, sequences)
    ends = torch.tensor(starts) + torch.tensor(lengths_k)
    return Plan(
        q_shape=(batch, case.seqlen_q),
        k_shape=(batch + FREE, capacity),
        q_rows=q_rows,
        k_rows=k_rows,
        q_theirs=q_theirs,
        k_theirs=k_theirs,
        tables={
            "cache_seqlens": torch.tensor(lengths_k, dtype=torch.int32) - new,
            "cache_batch_idx": torch.tensor(slots, dtype=torch.int32),
        },
        new=ends[:, None] - new + torch.arange(new) if new else None,
        words=f"in a cache of {batch + FREE} slots for {capacity} keys: {words_of(sequences, case, *_of_new(new))}",
    )


def _of_new(new: int) -> list[str]:
    return [f"the last {new} of each are new"] if new else []
