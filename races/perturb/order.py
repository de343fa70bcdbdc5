"""Other orders of threads, warps and blocks: of kernels that run in the emulator, as no order is promised."""

from __future__ import annotations

from contextlib import AbstractContextManager

from flash_attest.emulator.runtime.watch import ordered
from flash_attest.races.perturb.perturbation import Perturbation, Setting

SWITCH = 0.02  # the probability that another thread continues at an access


def _order(setting: Setting) -> AbstractContextManager[None]:
    """Each thread until it waits, each warp until it waits, or, unless that takes long, threads switched at accesses, too."""
    draw = setting.random("order")
    ways = [(False, 0.0), (True, 0.0)] + ([] if setting.large else [(False, SWITCH)])
    by_warp, switch = draw.choice(ways)
    return ordered(1 + draw.randrange(2**32), switch, by_warp)


ORDER = Perturbation(
    "order", "threads, warps and blocks run in other orders", _order, frozenset({"cpu"}), emulated=True, slots=3
)
