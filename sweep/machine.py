"""The device of this machine, its memory and perturbations, and the workers to start on it.

A process that has used CUDA cannot fork another process that uses it, so a child process reads
these facts.
"""

from __future__ import annotations

import torch

from flash_attest.properties.machine.gpus import cores, in_turn, visible_gpus
from flash_attest.properties.progress import NOW
from flash_attest.races.perturb import chosen
from flash_attest.runner.isolation.endings import Ending
from flash_attest.runner.isolation.parent import answer_of, possible
from flash_attest.runner.plugin.environment import environment

LIMIT = 300.0  # seconds for the first use of a GPU
# A run of small kernels is mostly work of the host, so several processes share a GPU. Each needs
# some of its memory.
SLOTS_PER_GPU, GIB_PER_SLOT = 4, 10


class MachineError(ValueError):
    """The device does not work. The message says in which way."""


def facts(device: str) -> dict:
    """Return {device_name, free: bytes of each GPU, perturbations: {device: names possible here}}.

    Raises MachineError if the device does not work.
    """

    def ask() -> dict:
        with NOW.call():  # a driver that takes longer than the limit hangs
            return values()

    def values() -> dict:
        gpus = range(torch.cuda.device_count()) if device == "cuda" else ()
        return {
            "device_name": torch.cuda.get_device_name() if device == "cuda" else environment("cpu")["device_name"],
            "free": [torch.cuda.mem_get_info(n)[0] for n in gpus],
            "perturbations": {each: [p.name for p in chosen("", each)] for each in sorted({device, "cpu"})},
        }

    answer = answer_of(ask, LIMIT) if possible() else ask()
    if isinstance(answer, Ending):
        raise MachineError(
            f"--device {device}: a process that uses it ended: {'; '.join([answer.words, *answer.printed])}"
        )
    return answer


def places(device: str, workers: int | None, free: list[int]) -> list[tuple[str, str | None]]:
    """Return (name, GPU) of each worker: one worker for each core, or on GPUs one for each slot.

    `workers` sets their number, and they are distributed over the GPUs.
    """
    gpus = visible_gpus() if device == "cuda" else []
    if not gpus:
        return [(f"w{n}", None) for n in range(workers or cores())]
    slots = [max(1, min(SLOTS_PER_GPU, int(bytes_ / 2**30 / GIB_PER_SLOT))) for bytes_ in free]
    turns = in_turn(gpus, slots)
    turns = [gpus[n % len(gpus)] for n in range(workers)] if workers else turns[: max(cores(), len(gpus))]
    return [(f"w{n}", gpu) for n, gpu in enumerate(turns)]
