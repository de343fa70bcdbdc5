"""Guesses the cause of wrong values from the values."""

from __future__ import annotations

import torch


def read_off(got: torch.Tensor, want: torch.Tensor, bad: torch.Tensor) -> str | None:
    """Return a guess at the cause, or None. bad: which elements of got are wrong."""
    g, w = got[bad].double(), want.broadcast_to(got.shape)[bad].double()
    if bool(g.isnan().any()):
        return "NaN: inf - inf in the softmax, 0 * inf, or uninitialised memory"
    if bool((g == 0).all()):
        return "zeros: rows or columns that were never written, or a failed launch whose error was not checked"
    known = w.isfinite() & g.isfinite() & (w.abs() > 1e-6 * w.abs().amax().clamp(min=1e-30))
    if int(known.sum()) < 8 or int(bad.sum()) < 0.5 * bad.numel():
        return None
    if got.dim() > 3 and int(bad.any(-1).sum()) < 2:  # a wrong row sum also scales all columns of one row
        return None
    ratio = (g[known] / w[known]).median().item()
    off = ((g[known] - ratio * w[known]).abs().median() / (w[known].abs().median() + 1e-30)).item()
    if off < 0.02 and abs(ratio - 1) > 0.002:
        known_as = {1.4427: "base 2 instead of e", 0.6931: "an extra factor of ln 2"}
        named = next((f" ({text})" for value, text in known_as.items() if abs(ratio - value) < 2e-3), "")
        return f"a constant factor: got is {ratio:.4g} times what it should be{named}"
    return None
