"""Perturbations for repeats: disturbances that do not affect a correct implementation.

perturbation.py   Perturbation and Setting
schedule.py       which perturbations are chosen, and in which repeats they are active
memory.py         poison, other_case (every device)
order.py          order (kernels in the emulator)
gpu.py            stress, squeezed, producer, cold, shifted; beside.py has their kernels
"""

from flash_attest.races.perturb.gpu import COLD, PRODUCER, SHIFTED, SQUEEZED, STRESS
from flash_attest.races.perturb.memory import OTHER_CASE, POISON
from flash_attest.races.perturb.order import ORDER
from flash_attest.races.perturb.perturbation import Perturbation, Setting
from flash_attest.races.perturb.schedule import NONE, choose, rounds

__all__ = ["ALL", "NONE", "Perturbation", "Setting", "chosen", "rounds"]

# In the order in which they are applied. Perturbations that write inputs come after perturbations
# that fill memory.
_ORDER = (OTHER_CASE, COLD, STRESS, SQUEEZED, POISON, SHIFTED, PRODUCER, ORDER)
ALL: dict[str, Perturbation] = {each.name: each for each in _ORDER}


def chosen(text: str, device: str, emulated: bool = True) -> tuple[Perturbation, ...]:
    """Return the perturbations that a text, "a,b", names. "" means all of the device, "none" none.

    emulated: whether the kernels run in the emulator. If not, perturbations of its threads are left
    out. Raises ValueError for an unknown perturbation, one that the device does not have, or one
    that cannot run in this process.
    """
    return choose(ALL, text, device, emulated)
