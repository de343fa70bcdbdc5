"""Changes a drawn case so that a mistake about strides and addresses shows (`Draws.toward`)."""

from __future__ import annotations

from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.limits import short
from flash_attest.properties.cases.sparse_memory import LARGEST

VECTOR = 8  # elements; 16 bytes in a half dtype


def telling(case: Case) -> Case:
    """Return the case with sizes for which its layout differs from others.

    offset, odd_rows: rows are multiples of 16 bytes long, as kernels load others by element.
    size_one: there is one query or one key head. sliced: there are several batches, as rows are cut
    off behind each. mixed: there are two batches and two heads, and q, k and v have one shape, as a
    kernel may read one with the strides of another where these fit.
    """
    if case.layout in ("offset", "odd_rows"):
        return case.but(headdim=max(VECTOR, case.headdim - case.headdim % VECTOR))
    if case.layout == "sliced" and case.batch == 1:
        return short(case).but(batch=2)
    if case.layout == "mixed":
        case = short(case)
        return case.but(batch=2, nheads=2, nheads_k=2, seqlen_k=case.seqlen_q)
    if case.layout == "size_one" and 1 not in (case.seqlen_q, case.nheads_k):
        return case.but(nheads=case.nheads // case.nheads_k, nheads_k=1)
    return case


def of_several(case: Case) -> Case:
    """Return the case with at least two batches, heads and keys, and a bias for each.

    A dimension of size 1 cannot be spread. There are four batches, or four key heads, so that the
    stride between them fits in 32 bits and only its products do not: Triton takes larger strides as
    64-bit integers, whose products are right. A single query is kept, as decoding has its own
    kernels. There are only two batches and key heads if sparse memory cannot hold more.
    """
    group = case.nheads // case.nheads_k
    seqlen_k = max(case.seqlen_k, 2)
    seqlen_q = seqlen_k if case.seqlen_q == case.seqlen_k else case.seqlen_q
    batches, heads = (4, 2) if seqlen_k % 2 else (2, 4)
    batch, nheads_k = max(case.batch, batches), max(case.nheads_k, heads)
    longest, width = max(seqlen_q, seqlen_k), max(case.headdim, 0 if case.bias is None else seqlen_k)
    if batch * nheads_k * group * longest * width * 4 > LARGEST:
        batch = nheads_k = 2
    nheads = nheads_k * group
    bias = {} if case.bias is None else dict(bias_batch=batch, bias_nheads=nheads)
    return case.but(batch=batch, nheads=nheads, nheads_k=nheads_k, seqlen_q=seqlen_q, seqlen_k=seqlen_k, **bias)
