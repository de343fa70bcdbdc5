"""Perturbations of the repeat layer: disturbances that a correct implementation does not notice.

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

# By name, in the order in which they are applied: perturbations that write inputs come after those
# that fill memory.
_ORDER = (OTHER_CASE, COLD, STRESS, SQUEEZED, POISON, SHIFTED, PRODUCER, ORDER)
ALL: dict[str, Perturbation] = {each.name: each for each in _ORDER}


def chosen(text: str, device: str, emulated: bool = True) -> tuple[Perturbation, ...]:
    """Return the perturbations of a text, "a,b": "" means all that the device has, "none" none.

    emulated: whether the kernels run in the emulator. If not, perturbations of its threads are left
    out. Raises ValueError for an unknown name, for a name that the device does not have, and for a
    name that lacks something in this process.
    """
    return choose(ALL, text, device, emulated)
