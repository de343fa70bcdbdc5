"""Padded: each sequence has a row of the batch, of which it uses the first seqused elements."""

from __future__ import annotations

import torch

from flash_attest.impls.contract.plan import Plan
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.forms.sequences import lengths_of, rows_of, sequences_of, words_of


def padded(impl: Implementation, case: Case) -> Plan:
    """Return the plan of a padded call. All sequences have `slack` rows more than the longest."""
    sequences = sequences_of(impl, case)
    lengths_q, lengths_k = lengths_of(sequences)
    most_q, most_k = max(lengths_q) + case.slack, max(lengths_k) + case.slack
    q_rows, q_theirs = rows_of([b * most_q for b in range(len(sequences))], lengths_q, sequences)
    k_rows, k_theirs = rows_of([b * most_k for b in range(len(sequences))], lengths_k, sequences)
    return Plan(
        q_shape=(len(sequences), most_q),
        k_shape=(len(sequences), most_k),
        q_rows=q_rows,
        k_rows=k_rows,
        q_theirs=q_theirs,
        k_theirs=k_theirs,
        tables={
            name: torch.tensor(n, dtype=torch.int32) for name, n in (("seqused_q", lengths_q), ("seqused_k", lengths_k))
        },
        words=f"padded to {most_q} queries and {most_k} keys: {words_of(sequences, case)}",
    )
