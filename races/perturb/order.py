"""Other orders of threads, warps and blocks, for kernels in the emulator."""

from __future__ import annotations

from contextlib import AbstractContextManager

from flash_attest.emulator.runtime.watch import ordered
from flash_attest.races.perturb.perturbation import Perturbation, Setting

SWITCH = 0.02  # the probability of switching to another thread at an access


def _order(setting: Setting) -> AbstractContextManager[None]:
    """Run threads or warps in another order; if that is fast enough, also switch at accesses."""
    draw = setting.random("order")
    ways = [(False, 0.0), (True, 0.0)] + ([] if setting.large else [(False, SWITCH)])
    by_warp, switch = draw.choice(ways)
    return ordered(1 + draw.randrange(2**32), switch, by_warp)


ORDER = Perturbation(
    "order", "threads, warps and blocks run in other orders", _order, frozenset({"cpu"}), emulated=True, slots=3
)
