"""Measures which keys each query attends to, for messages. It is not used for judging.

out is linear in v: if only v_j has a 1 in some column, that column of out is the weight P_ij.
"""

from __future__ import annotations

import torch

from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.checks.pictures import ranges
from flash_attest.properties.checks.reading import Counts
from flash_attest.properties.checks.wrong import Wrong, cells
from flash_attest.properties.trial import Trial

MOST_KEYS = 512  # more would need too many calls for one message
SHOWN_KEYS, SHOWN_QUERIES = 12, 4
PADDING = "padding has weight, too"
RIGHT_KEYS = "the right keys have weight"
LEGEND = "1 attended   0 masked   . missing   ! extra"


def weights(trial: Trial, x: Inputs) -> torch.Tensor | None:
    """Return P (b, h, sq, sk) of the implementation, or None if that takes too many calls, or a v
    that is the first columns of k.

    One call measures headdim_v keys.
    """
    case = trial.case
    if case.seqlen_k > MOST_KEYS or trial.impl.supports.shared_kv == "always":
        return None
    columns = []
    for first in range(0, case.seqlen_k, case.headdim_v):
        v = torch.zeros_like(x.v)
        for d in range(min(case.headdim_v, case.seqlen_k - first)):
            v[:, first + d, :, d] = 1
        columns.append(trial.run(x.with_(v=v)).out.transpose(1, 2))  # (b, h, sq, d)
    return torch.cat(columns, dim=-1)[..., : case.seqlen_k]


def picture(
    trial: Trial, x: Inputs, seen: torch.Tensor, at: tuple[int, int, int], wrong_is: Wrong | None, reading: Counts
) -> tuple[str, list[str]]:
    """Compare the keys that the row at (b, h, i) attends to with those that it should see.

    seen: bool (b, h, sq, sk). Returns a phrase and a drawing: "key 64 is missing" and
    [LEGEND, "key        62 63 64", "query 63    1  1  0", ...]; both are empty if the weights
    cannot be measured. Adds what is measured to the reading, and the missing and extra pairs of
    this head to `wrong_is`.
    """
    p = weights(trial, x)
    b, h, i = at
    if p is None or not bool(p[b, h].isfinite().all()):
        return "", []
    got, want = p[b, h] != 0, seen[b, h]
    reading.attended = got.cpu()
    wrong = (got[i] != want[i]).nonzero().flatten().tolist()
    if not wrong:
        own = p[b, h, i].sum().item()  # 1 if only existing keys have weight; rounding changes this by at most 2^-9
        if x.sinks is not None:
            keys = int(want[i].sum())
            should = keys / (keys + x.sinks[h].double().exp().round().item()) if keys else 0.0
            return RIGHT_KEYS if abs(own - should) < 0.01 else _share_of_keys(own, should), []
        reading.padding = bool(want[i].any()) and own < 0.99
        return (PADDING if reading.padding else RIGHT_KEYS), []
    if wrong_is is not None:
        wrong_is.missing, wrong_is.extra = cells(want & ~got), cells(got & ~want)
    missing = [j for j in wrong if want[i, j]]
    extra = [j for j in wrong if not want[i, j]]
    phrases = [f"{_keys(keys)} {what}" for keys, what in ((missing, "missing"), (extra, "extra")) if keys]
    first = max(0, min(wrong[0] - SHOWN_KEYS // 2, want.shape[1] - SHOWN_KEYS))
    keys = range(first, min(first + SHOWN_KEYS, want.shape[1]))
    start = max(0, min(i - SHOWN_QUERIES // 2, want.shape[0] - SHOWN_QUERIES))
    lines = [LEGEND, "key        " + " ".join(f"{j:3}" for j in keys)]
    for query in range(start, min(start + SHOWN_QUERIES, want.shape[0])):
        marks = " ".join(f"{_mark(bool(got[query, j]), bool(want[query, j])):>3}" for j in keys)
        lines.append(f"query {query:<5}{marks}")
    return ", ".join(phrases), lines


def _share_of_keys(own: float, should: float) -> str:
    return f"the weights of its keys sum to {own:.4g} beside the sink, should be {should:.4g}"


def _keys(keys: list[int]) -> str:
    return f"key {keys[0]} is" if len(keys) == 1 else f"keys {ranges(keys)} are"


def _mark(got: bool, want: bool) -> str:
    if got == want:
        return "1" if got else "0"
    return "!" if got else "."
