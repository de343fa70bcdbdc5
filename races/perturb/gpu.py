"""Perturbations of a GPU. Whatever runs beside a launch or before it ends by itself, and nothing makes the host wait.

stress      small blocks compute and read memory on a second stream, and share the SMs
squeezed    blocks that take half of an SM each lie on a random number of the SMs
producer    the inputs are written late: by the stream of the launch, just before it, after a pause; until then they are NaN
cold        the L2 cache holds something else
shifted     the inputs lie at other addresses, by multiples of 64 bytes, as torch promises no more than that
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

from flash_attest.races.perturb.perturbation import Perturbation, Setting

STEP, MOST_STEPS = 64, 512  # bytes, and how many of them inputs are moved by at most
STRESSING = 2**24  # elements that the stress kernel reads: more bytes than an L2 cache has
SHORTEST, LONGEST = 20_000, 300_000  # nanoseconds of the pause before the inputs are written


def _lacking() -> str:
    """What keeps a kernel from running beside a launch, or until after it is queued."""
    if not importlib.util.find_spec("triton"):
        return "Triton is not installed"
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        return "CUDA_LAUNCH_BLOCKING is set, so each kernel ends before the next is launched"
    return ""


@cache
def _stream(device: int, name: str) -> torch.cuda.Stream:
    """Each perturbation has its own: on one stream a second kernel would wait for the end of the first."""
    return torch.cuda.Stream(device)


@contextmanager
def _beside(name: str, launch: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """launch(done) on another stream, from just before the launch in this block until its end; done is 0 until then."""
    from flash_attest.races.perturb.beside import SETTLES, launch_wait  # here, as importing Triton takes a second

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
        stream.wait_stream(second)  # the next launch is not disturbed, and memory is not given away too early


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

    late = {name: moved(tensor, 0).fill_(torch.nan) for name, tensor in setting.handed.items() if is_dense(tensor)}
    launch_wait("cuda", setting.random("producer").randint(SHORTEST, LONGEST))
    for name, tensor in late.items():
        setting.handed[name] = tensor.copy_(setting.handed[name])
    yield


@contextmanager
def _shifted(setting: Setting) -> Iterator[None]:
    draw = setting.random("shifted")
    for name, tensor in setting.handed.items():
        steps = draw.randint(1, MOST_STEPS)
        if is_dense(tensor):
            setting.handed[name] = moved(tensor, steps * STEP // tensor.element_size()).copy_(tensor)
    yield


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether each element has a place of its own in memory."""
    return all(stride > 0 or size < 2 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def moved(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """Memory for a tensor of this shape, with the same strides, that begins so many elements after an allocation does."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    room = torch.empty(max(extent, 0) + elements, dtype=tensor.dtype, device=tensor.device)
    return room.as_strided(tensor.shape, tensor.stride(), elements)


STRESS = Perturbation("stress", "a kernel on a second stream shares the SMs", _stress, lacking=_lacking)
SQUEEZED = Perturbation("squeezed", "a resident kernel takes half of some of the SMs", _squeezed, lacking=_lacking)
PRODUCER = Perturbation("producer", "a slow kernel writes the inputs just before", _producer, lacking=_lacking)
COLD = Perturbation("cold", "the L2 cache holds something else", _cold)
SHIFTED = Perturbation("shifted", "the inputs lie at other addresses", _shifted)
