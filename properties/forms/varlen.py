"""Varlen: the sequences lie one behind the other, and cu_seqlens says where each begins."""

from __future__ import annotations

from flash_attest.impls.contract.plan import Plan
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.forms.sequences import lengths_of, longest_of, rows_of, sequences_of, starts_of, words_of


def varlen(impl: Implementation, case: Case) -> Plan:
    """Return the plan of a varlen call.

    `slack` rows behind the last sequence belong to nobody, and max_seqlen is too large by as many.
    """
    sequences = sequences_of(impl, case)
    lengths_q, lengths_k = lengths_of(sequences)
    starts_q, starts_k = starts_of(lengths_q), starts_of(lengths_k)
    q_rows, q_theirs = rows_of(starts_q[:-1].tolist(), lengths_q, sequences)
    k_rows, k_theirs = rows_of(starts_k[:-1].tolist(), lengths_k, sequences)
    longest = longest_of(sequences, case)
    return Plan(
        q_shape=(int(starts_q[-1]) + case.slack,),
        k_shape=(int(starts_k[-1]) + case.slack,),
        q_rows=q_rows,
        k_rows=k_rows,
        q_theirs=q_theirs,
        k_theirs=k_theirs,
        tables={"cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k},
        numbers=longest,
        words=f"packed as {words_of(sequences, case, *(f'{name}={n}' for name, n in longest.items()))}",
    )
