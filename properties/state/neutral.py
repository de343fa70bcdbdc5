"""The state in which laws are judged, whatever the program around them has set.

A script may set torch's default dtype before it calls check(), and a test module when it is
imported. The oracle would then compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import _push_mode as push_function_mode  # private, as there is no public way
from torch.utils._python_dispatch import _push_mode as push_dispatch_mode

from flash_attest.properties.state import number_things, torch_things
from flash_attest.properties.state.import_things import ANOMALY
from flash_attest.properties.state.thing import Thing
from flash_attest.properties.state.torch_things import (
    dispatch_modes,
    function_modes,
    pop_dispatch_mode,
    pop_function_mode,
)

_by_name = {thing.name: thing for thing in (*torch_things.THINGS, *number_things.THINGS)}

# Each piece of state, and its neutral value, given the value that it has.
NEUTRAL: tuple[tuple[Thing, Callable[[Any], Any]], ...] = (
    (_by_name["torch's default dtype"], lambda now: torch.float32),
    (_by_name["torch's grad mode, inference mode"], lambda now: (True, False)),
    (_by_name["torch's autocast"], lambda now: tuple((False, dtype) for _, dtype in now)),
    (_by_name["the processor's denormal numbers (True: flushed to 0)"], lambda now: False),
    (_by_name["the processor's rounding mode"], lambda now: 0),
    (ANOMALY, lambda now: (False, now[1])),
)
MODES = (
    (function_modes, pop_function_mode, push_function_mode),
    (dispatch_modes, pop_dispatch_mode, push_dispatch_mode),
)


@contextmanager
def neutral() -> Iterator[None]:
    """Judge in this block as in a program that has set nothing."""
    with ExitStack() as stack:
        for length, pop, push in MODES:  # torch's default device is a function mode, too
            while length():
                stack.callback(push, pop())
        for thing, value in NEUTRAL:
            if (wanted := value(now := thing.read())) != now:
                stack.callback(thing.put_back, now)
                thing.put_back(wanted)
        yield
