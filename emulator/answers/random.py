"""Random numbers: the emulated GPU uses the CPU's generator, because its tensors are CPU
tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from flash_attest.emulator.answers.memory import GPU, is_gpu, real

_Generator = torch.Generator


class _AnyGenerator(type(_Generator)):
    """Makes torch.default_generator, which torch created earlier, an instance of the class
    below.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Generator)


class Generator(_Generator, metaclass=_AnyGenerator):
    """A torch.Generator that accepts device="cuda"."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        generator = super().__new__(cls, real(device))
        generator._gpu = is_gpu(device)
        return generator

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    @property
    def device(self) -> torch.device:
        return GPU if self._gpu else torch.device("cpu")


GENERATORS = {"Generator": Generator}
RANDOM = {
    "default_generators": (torch.default_generator,),
    "manual_seed": lambda seed: torch.default_generator.manual_seed(int(seed)) and None,
    "manual_seed_all": lambda seed: torch.default_generator.manual_seed(int(seed)) and None,
    "seed": lambda: torch.default_generator.seed(),
    "seed_all": lambda: torch.default_generator.seed(),
    "initial_seed": lambda: torch.default_generator.initial_seed(),
    "get_rng_state": lambda device="cuda": torch.default_generator.get_state(),
    "get_rng_state_all": lambda: [torch.default_generator.get_state()],
    "set_rng_state": lambda state, device="cuda": torch.default_generator.set_state(state),
    "set_rng_state_all": lambda states: torch.default_generator.set_state(states[0]) and None,
}
