"""Perturbations of the repeat layer: disturbances around a launch that a correct implementation does not notice.

perturbation.py   Perturbation and Setting, what all of them are
schedule.py       which are chosen, and which are active in which repeat
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

# By name, in the order in which they are applied: what writes the inputs comes after what fills memory.
_ORDER = (OTHER_CASE, COLD, STRESS, SQUEEZED, POISON, SHIFTED, PRODUCER, ORDER)
ALL: dict[str, Perturbation] = {each.name: each for each in _ORDER}


def chosen(text: str, device: str, emulated: bool = True) -> tuple[Perturbation, ...]:
    """Names, separated by commas -> perturbations. "": all that the device has; "none": none.

    emulated: whether the kernels run in the emulator; if not, what acts on its threads is left out. Raises ValueError for an
    unknown name, for one that the device does not have, and for one that lacks something in this process.
    """
    return choose(ALL, text, device, emulated)
