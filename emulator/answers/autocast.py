"""torch.autocast("cuda"): programs see the state that they set, but the CPU's autocast acts on the
tensors.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.amp import autocast_mode

_enter, _exit = autocast_mode.autocast.__enter__, autocast_mode.autocast.__exit__


@functools.wraps(_enter)
def _entered(self: autocast_mode.autocast) -> Any:
    result = _enter(self)
    if self.device == "cuda":
        beside = autocast_mode.autocast("cpu", self.fast_dtype, self._enabled, self._cache_enabled)
        _enter(beside)
        self.__dict__.setdefault("_beside", []).append(beside)
    return result


@functools.wraps(_exit)
def _exited(self: autocast_mode.autocast, *exception: Any) -> Any:
    if self.__dict__.get("_beside"):
        _exit(self._beside.pop(), *exception)
    return _exit(self, *exception)


AUTOCAST = {"__enter__": _entered, "__exit__": _exited}
