"""Perturbations on a GPU.

All work beside or before a launch ends by itself, and the host never waits for it.

stress      small blocks compute and read memory on a second stream, and share the SMs
squeezed    blocks that take half of an SM each occupy a random number of the SMs
producer    the inputs are NaN until the launch's stream writes them, late, just before the launch;
            lengths and numbers of pages are 0
cold        the L2 cache holds something else
shifted     the inputs lie at other addresses, moved by multiples of 64 bytes, torch's alignment
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

from flash_attest.races.perturb.perturbation import Perturbation, Setting

STEP, MOST_STEPS = 64, 512  # inputs are moved by at most MOST_STEPS steps of STEP bytes
STRESSING = 2**24  # elements that the stress kernel reads, more than an L2 cache holds
SHORTEST, LONGEST = 20_000, 300_000  # nanoseconds of the pause before the inputs are written


def _lacking() -> str:
    """Return why this process cannot run kernels beside a launch or delay one; "" if it can."""
    if not importlib.util.find_spec("triton"):
        return "Triton is not installed"
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        return "CUDA_LAUNCH_BLOCKING is set, so each kernel ends before the next is launched"
    return ""


@cache
def _stream(device: int, name: str) -> torch.cuda.Stream:
    """Return the separate stream of a perturbation.

    On a shared stream, the kernel of one would wait for the kernel of another.
    """
    return torch.cuda.Stream(device)


@contextmanager
def _beside(name: str, launch: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Run launch(done) on another stream, beside the launch in this block.

    done is 0 until that launch ends.
    """
    from flash_attest.races.perturb.beside import SETTLES, launch_wait  # importing Triton takes a second

    stream, second = torch.cuda.current_stream(), _stream(torch.cuda.current_device(), name)
    done = torch.zeros(1, dtype=torch.int32, device="cuda")
    second.wait_stream(stream)
    with torch.cuda.stream(second):
        launch(done)
    launch_wait("cuda", SETTLES)
    try:
        yield
    finally:
        done.fill_(1)
        stream.wait_stream(second)  # so that the next launch is undisturbed, and memory is not reused too early


def _sms() -> int:
    return torch.cuda.get_device_properties().multi_processor_count


@contextmanager
def _stress(setting: Setting) -> Iterator[None]:
    from flash_attest.races.perturb.beside import launch_work

    memory = torch.empty(STRESSING, device="cuda")
    blocks = _sms() * setting.random("stress").randint(1, 4)
    with _beside("stress", lambda done: launch_work(done, blocks, memory)):
        yield


@contextmanager
def _squeezed(setting: Setting) -> Iterator[None]:
    from flash_attest.races.perturb.beside import launch_hold

    blocks = setting.random("squeezed").randint(1, max(1, _sms() - 1))
    with _beside("squeezed", lambda done: launch_hold(done, blocks)):
        yield


@contextmanager
def _cold(setting: Setting) -> Iterator[None]:
    size = 2 * torch.cuda.get_device_properties().L2_cache_size
    torch.empty(size, dtype=torch.uint8, device="cuda").fill_(setting.random("cold").randrange(256))
    yield


@contextmanager
def _producer(setting: Setting) -> Iterator[None]:
    from flash_attest.races.perturb.beside import launch_wait

    late = {name: unwritten(tensor) for name, tensor in setting.handed.items() if is_dense(tensor)}
    launch_wait("cuda", setting.random("producer").randint(SHORTEST, LONGEST))
    for name, tensor in late.items():
        setting.handed[name] = tensor.copy_(setting.handed[name])
    yield


def unwritten(tensor: torch.Tensor) -> torch.Tensor:
    """Return memory like this tensor's, before anything is written: NaN, or 0 for integers.

    A kernel that does not wait reads it. Lengths of 0 and page 0 keep it within its inputs.
    """
    return moved(tensor, 0).fill_(torch.nan if tensor.is_floating_point() else 0)


@contextmanager
def _shifted(setting: Setting) -> Iterator[None]:
    draw = setting.random("shifted")
    for name, tensor in setting.handed.items():
        steps = draw.randint(1, MOST_STEPS)
        if is_dense(tensor):
            setting.handed[name] = moved(tensor, steps * STEP // tensor.element_size()).copy_(tensor)
    yield


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether no two elements share an address."""
    return all(stride > 0 or size < 2 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def moved(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """Return memory of this shape and strides, at offset `elements` in a new allocation."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    room = torch.empty(max(extent, 0) + elements, dtype=tensor.dtype, device=tensor.device)
    return room.as_strided(tensor.shape, tensor.stride(), elements)


STRESS = Perturbation("stress", "a kernel on a second stream shares the SMs", _stress, lacking=_lacking)
SQUEEZED = Perturbation("squeezed", "a resident kernel takes half of some of the SMs", _squeezed, lacking=_lacking)
PRODUCER = Perturbation("producer", "a slow kernel writes the inputs just before", _producer, lacking=_lacking)
COLD = Perturbation("cold", "the L2 cache holds something else", _cold)
SHIFTED = Perturbation("shifted", "the inputs lie at other addresses", _shifted)
