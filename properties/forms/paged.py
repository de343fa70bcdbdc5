"""Paged: queries lie one behind the other, keys in pages that a table lists for each sequence."""

from __future__ import annotations

import torch

from flash_attest.impls.contract.plan import Plan
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.form_features import PAGES
from flash_attest.properties.forms.sequences import (
    appended,
    lengths_of,
    longest_of,
    random_of,
    rows_of,
    sequences_of,
    starts_of,
    words_of,
)

FREE = 3  # pages that no sequence has


def paged(impl: Implementation, case: Case) -> Plan:
    """Return the plan of a call with pages.

    The ends of pages and free pages belong to nobody. The entries of the table behind the pages of
    a sequence are a free page, or -1 if the implementation never reads those rows. The last
    `append` keys of each sequence are handed as new ones: seqused_k counts those before them.
    """
    size = page_size_of(impl, case)
    sequences, new = sequences_of(impl, case), appended(case)
    lengths_q, lengths_k = lengths_of(sequences)
    starts_q = starts_of(lengths_q)
    q_rows, q_theirs = rows_of(starts_q[:-1].tolist(), lengths_q, sequences)
    # Give each sequence its pages.
    counts = [-(-n // size) for n in lengths_k]
    pages = list(range(sum(counts) + FREE))
    if case.page_order == "shuffled":
        random_of(case, "pages").shuffle(pages)
    free = pages[sum(counts) :]
    columns = max(counts) + bool(case.slack)
    table = torch.full((len(sequences), max(columns, 1)), free[0] if impl.slack == "finite" else -1, dtype=torch.int32)
    at = 0
    for b, count in enumerate(counts):
        table[b, :count] = torch.tensor(pages[at : at + count], dtype=torch.int32)
        at += count
    rows = [_rows_in(table[b], n, size) for b, n in enumerate(lengths_k)]
    judged = [row for row, one in zip(rows, sequences, strict=True) if one.judged]
    theirs = [row for row, one in zip(rows, sequences, strict=True) if not one.judged]
    of_first = [f"the first sequence on {' '.join(map(str, pages[: counts[0]][:8]))}"] if counts[0] else []
    words = words_of(sequences, case, f"{len(pages)} pages of {size} keys", *of_first)
    return Plan(
        q_shape=(int(starts_q[-1]) + case.slack,),
        k_shape=(len(pages), size),
        q_rows=q_rows,
        k_rows=torch.stack(judged),
        q_theirs=q_theirs,
        k_theirs=torch.cat(theirs) if theirs else torch.arange(0),
        tables={
            "cu_seqlens_q": starts_q,
            "block_table": table,
            "seqused_k": torch.tensor(lengths_k, dtype=torch.int32) - new,
        },
        numbers=longest_of(sequences, case),
        new=torch.stack([row[len(row) - new :] for row in rows]) if new else None,
        words=f"paged as {words}",
    )


def page_size_of(impl: Implementation, case: Case) -> int:
    """Return how many keys a page of the case has."""
    if case.page_size is not None:
        return case.page_size
    declared = impl.supports.page_sizes
    return next(n for n in (*sorted(PAGES), *range(1, max(PAGES) + 1)) if n in declared)


def _rows_in(pages: torch.Tensor, length: int, size: int) -> torch.Tensor:
    """Return the row of each key of a sequence in the flattened pages."""
    keys = torch.arange(length)
    return pages[keys // size].long() * size + keys % size if length else keys
