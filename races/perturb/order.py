"""Other orders of threads, warps and blocks: of kernels that run in the emulator, as no order is promised."""

from __future__ import annotations

from contextlib import AbstractContextManager

from emulator.runtime.watch import ordered
from races.perturb.perturbation import Perturbation, Setting

SWITCH = 0.02  # the probability that another thread continues at an access


def _order(setting: Setting) -> AbstractContextManager[None]:
    """Each thread until it waits, each warp until it waits, or threads switched at accesses, too."""
    draw = setting.random("order")
    by_warp, switch = draw.choice(((False, 0.0), (True, 0.0), (False, SWITCH)))
    return ordered(1 + draw.randrange(2**32), switch, by_warp)


ORDER = Perturbation(
    "order", "threads, warps and blocks run in other orders", _order, frozenset({"cpu"}), emulated=True, slots=3
)
