"""The time of a call in milliseconds, and the device's best rate of matrix products in TFLOP/s.

On a GPU, device events surround every call, L2 is flushed before each, and medians are reported.
Without the flush, repeats on the same inputs would measure the cache. The flush is repeated for as
long as the host needs to issue the call, so the figures do not include launching.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch._functorch.config

from flash_attest.impls.contract.call import keywords
from flash_attest.impls.contract.record import Implementation
from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.case import DTYPES

FLUSH = 256 * 2**20  # bytes written before each call: five times the L2 of an H200
WARM_UP = 0.025  # seconds, after the first calls
REPEATS = {"cuda": (10, 500), "cpu": (5, 500)}  # at least, at most
PEAK_SIZES = {"cuda": (4096, 8192, 16384), "cpu": (256, 512, 1024)}
torch._functorch.config.donated_buffer = False  # else a compiled graph's backward runs only once


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one call: median, 20th and 80th percentile, fastest.

    issue_ms: the time that the host needs to issue the call on a GPU.
    """

    ms: float
    low: float
    high: float
    fastest: float
    repeats: int
    issue_ms: float = 0.0


@dataclass(frozen=True)
class Peak:
    """The best rate of a matrix product, and the product that had it."""

    tflops: float
    product: str


def forward_call(impl: Implementation, x: Inputs, causal: bool, **others: object) -> Callable[[], object]:
    """Return a call of the implementation's forward, given x in its layout. others: keywords."""
    options = keywords(impl.supports, causal=causal, **others)

    def call():
        with torch.no_grad():
            return impl.forward(x.q, x.k, x.v, **options)

    return call


def backward_call(impl: Implementation, x: Inputs, causal: bool, **others: object) -> Callable[[], object]:
    """Return a call of the implementation's backward alone, for dq, dk and dv, given x in its
    layout. others: keywords.

    The forward runs here, once.
    """
    options = keywords(impl.supports, causal=causal, **others)
    if impl.backward == "autograd":
        leaves = [tensor.detach().requires_grad_() for tensor in (x.q, x.k, x.v)]
        result = impl.forward(*leaves, **options)
        out = result if isinstance(result, torch.Tensor) else result[0]
        return lambda: torch.autograd.grad(out, leaves, x.dout, retain_graph=True)
    result = forward_call(impl, x, causal, **others)()
    out, lse = (result, None) if isinstance(result, torch.Tensor) else result

    def call():
        with torch.no_grad():
            return impl.backward(x.dout, x.q, x.k, x.v, out, lse, **options)

    return call


See = Callable[[int, int, object], None]  # the number of a timed call, how many there are, the result


def measure(
    call: Callable[[], object], device: str, seconds: float, see: See = lambda n, repeats, result: None
) -> Timing:
    """Repeat the call for about this many seconds, but at least a few times. Returns its Timing.

    see: gets each result between two timed calls.
    """
    return _by_events(call, seconds, see) if device == "cuda" else _by_wall_clock(call, seconds, see)


def _by_events(call: Callable[[], object], seconds: float, see: See) -> Timing:
    flush = torch.empty(FLUSH, dtype=torch.int8, device="cuda")
    call()  # compiles and tunes
    flush.zero_()
    estimate, flushing = _seconds_of(call), _seconds_of(flush.zero_)
    for _ in range(_count(WARM_UP, estimate, 1, 100)):
        call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    flushes = 1 + math.ceil((time.perf_counter() - began) / flushing)
    torch.cuda.synchronize()
    repeats = _count(seconds, estimate, *REPEATS["cuda"])
    starts, ends = ([torch.cuda.Event(enable_timing=True) for _ in range(repeats)] for _ in range(2))
    issues = []
    for n, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for _ in range(flushes):
            flush.zero_()
        start.record()
        began = time.perf_counter()
        result = call()
        issues.append(time.perf_counter() - began)
        end.record()
        see(n, repeats, result)
        del result  # its memory is free for the next call
    torch.cuda.synchronize()
    return _summary([start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)], min(issues))


def _seconds_of(call: Callable[[], object]) -> float:
    """Return how long the GPU takes for a call, with its launch."""
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return max(start.elapsed_time(end) / 1e3, 1e-6)


def _by_wall_clock(call: Callable[[], object], seconds: float, see: See) -> Timing:
    call()
    began = time.perf_counter()
    call()
    repeats = _count(seconds, time.perf_counter() - began, *REPEATS["cpu"])
    times = []
    for n in range(repeats):
        began = time.perf_counter()
        result = call()
        times.append(1e3 * (time.perf_counter() - began))
        see(n, repeats, result)
        del result
    return _summary(times, 0.0)


def _count(seconds: float, each: float, least: int, most: int) -> int:
    return max(least, min(most, round(seconds / each)))


def _summary(times: list[float], issue_seconds: float) -> Timing:
    """Return the Timing of n times in milliseconds."""
    low, median, high = (
        torch.tensor(times, dtype=torch.float64).quantile(torch.tensor([0.2, 0.5, 0.8]).double()).tolist()
    )
    return Timing(median, low, high, min(times), len(times), 1e3 * issue_seconds)


def peak(product: str, device: str, seconds: float = 0.2) -> Peak:
    """Return the best rate of square products of random matrices, from the fastest call.

    It is an upper bound for kernels that consist of such products. product: a dtype, or "tf32";
    "float32" on a GPU is without tf32. For half dtypes on a CPU, float32 is also tried, because it
    may be faster.
    """
    kinds = {"float32", product} if device == "cpu" else {product}
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, product == "tf32"
    try:
        rates = [_product(kind, size, device, seconds) for kind in kinds for size in PEAK_SIZES[device]]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return max(rates, key=lambda rate: rate.tflops)


def _product(kind: str, size: int, device: str, seconds: float) -> Peak:
    dtype = torch.float32 if kind == "tf32" else DTYPES[kind]
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    timing = measure(lambda: torch.mm(a, b, out=out), device, seconds)
    return Peak(2.0 * size**3 / timing.fastest / 1e9, f"{kind} {size} x {size} x {size}")
