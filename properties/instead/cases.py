"""The cases on which a failure is compared with the table: the failing one, and larger ones."""

from __future__ import annotations

import math
from collections.abc import Iterator

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case, CaseError
from flash_attest.properties.cases.draws import ANYTHING
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.cases.limits import is_slow, two_tiles
from flash_attest.properties.failures import AnotherCase

SMALL_TILE, LARGEST_TILE = 16, 128  # if none is declared, and of those that are
ROOTED = 9  # from this head dim on, 1 / sqrt(headdim) is not taken for another factor
SCALE = 0.3  # the same, in place of a given scale that is a power of two


def grown(impl: Implementation, case: Case, device: str) -> Iterator[Case]:
    """Yield larger cases with the same features, all of whose sizes are larger, or some.

    Kernels in an emulator get one batch, and fewer tiles if tiles are large.
    """
    slow = is_slow(impl, device)
    n = two_tiles(min(max(impl.tile or (SMALL_TILE,)), LARGEST_TILE), 3, slow=slow)
    more = 4 + case.append  # so that every query sees a key without the new ones
    lengths = dict(
        seqlen_q=n + 4 * (case.seqlen_q > case.seqlen_k), seqlen_k=n + more * (case.seqlen_q < case.seqlen_k)
    )
    one_query = lengths | dict(seqlen_q=1) if case.seqlen_q == 1 else lengths
    heads = dict(batch=2, nheads=4, nheads_k=2) if case.nheads != case.nheads_k else dict(batch=2, nheads=2, nheads_k=2)
    if slow:
        heads["batch"] = 1
    known = impl.supports.headdim_list
    larger = [d for d in known if d >= max(ROOTED, case.headdim) and math.isqrt(d) ** 2 != d] or [known[-1]]
    width = dict(headdim=larger[0]) if case.headdim == case.headdim_v < larger[0] else {}
    plain: dict = dict(regime="spread")
    if case.softmax_scale and abs(case.softmax_scale) != 1 and math.frexp(abs(case.softmax_scale))[0] == 0.5:
        plain["softmax_scale"] = math.copysign(SCALE, case.softmax_scale)
    tried = [case]
    for changes in (
        lengths | heads | width | plain,
        one_query | heads | width | plain,
        one_query | width | plain,
        heads | width | plain,
        one_query,
    ):
        try:
            changed = fitted(impl, case.but(**changes), ANYTHING)
        except (CaseError, AnotherCase):
            continue
        if changed not in tried and changed.bias == case.bias and changed.bias_mask == case.bias_mask:
            tried.append(changed)
            yield changed
