"""Lists what kernels compute instead of a case with a window, a softcap, sinks or other features.

Each entry is (name, words after "out is the one", case -> the case that a kernel mistakes it for),
as in Feature.mistaken.
"""

from __future__ import annotations

from collections.abc import Callable

from flash_attest.properties.cases.case import Case, Window

Other = Callable[[Case], Case | None]
LEFT, RIGHT = 0, 1


def _window(change: Callable[[Window], tuple | None]) -> Other:
    """Return the change of a case with a window. change: None if it does not apply."""

    def other(case: Case) -> Case | None:
        window = None if case.window is None else change(case.window)
        return None if window is None else case.but(window=window)

    return other


def _moved(side: int, by: int) -> Other:
    """Return the change of a side by this many keys."""

    def change(window: Window) -> Window | None:
        n = window[side]
        if n is None or n + by < 0:
            return None
        return (n + by, window[1]) if side == LEFT else (window[0], n + by)

    return _window(change)


def _open(side: int) -> Other:
    """Return the change that opens one of two bounded sides."""

    def change(window: Window) -> Window | None:
        if None in window:
            return None
        return (None, window[1]) if side == LEFT else (window[0], None)

    return _window(change)


def _exchanged(window: Window) -> Window | None:
    return None if None in window else window[::-1]


def _undivided(case: Case) -> Case | None:
    """Return the case whose scores under the softcap are softcap * tanh(score)."""
    return None if case.softcap is None else case.but(softmax_scale=case.scale * case.softcap)


def _capped_first(case: Case) -> Case | None:
    """Return the case whose scores are softmax_scale * softcap * tanh(q k / softcap)."""
    return None if case.softcap is None or not case.scale else case.but(softcap=case.softcap * abs(case.scale))


def _scaled_by_headdim_v(case: Case) -> Case | None:
    return None if case.softmax_scale is not None else case.but(softmax_scale=case.headdim_v**-0.5)


CAUSAL = (
    ("causal ignored", "of causal=False: the causal mask is left out", lambda case: case.but(causal=False)),
    ("causal", "of causal=True: a causal mask is applied, unasked", lambda case: case.but(causal=True)),
)
WINDOW = (
    ("window ignored", "of window=None, so the window is ignored", lambda case: case.but(window=None)),
    ("window without left", "of window={window}, so the left side is ignored", _open(LEFT)),
    ("window without right", "of window={window}, so the right side is ignored", _open(RIGHT)),
    ("window left longer", "of window={window}, so the left bound is one key too far", _moved(LEFT, 1)),
    ("window left shorter", "of window={window}, so the left bound is one key too near", _moved(LEFT, -1)),
    ("window right longer", "of window={window}, so the right bound is one key too far", _moved(RIGHT, 1)),
    ("window right shorter", "of window={window}, so the right bound is one key too near", _moved(RIGHT, -1)),
    ("window swapped", "of window={window}, so the two sides are exchanged", _window(_exchanged)),
)
SOFTCAP = (
    ("softcap ignored", "of softcap=None: the softcap is ignored", lambda case: case.but(softcap=None)),
    ("softcap undivided", "with softcap * tanh(score): the score is not divided by softcap", _undivided),
    ("softcap before the scale", "with the softcap applied before softmax_scale", _capped_first),
)
SINK = (("sinks ignored", "of sinks=None: the sinks are ignored", lambda case: case.but(sinks=None)),)
HIDDEN = (("hidden keys ignored", "of hidden=None: the hidden keys are visible", lambda case: case.but(hidden=None)),)
HEADDIM_V = (
    ("scale of headdim_v", "of softmax_scale = 1 / sqrt(headdim_v), in place of headdim", _scaled_by_headdim_v),
)
DLSE = (("dlse ignored", "of dlse = 0: the gradient of lse is ignored", lambda case: case.but(dlse=False)),)
