"""Host code of packages: device arrays, transfers, streams, events, the device, Numba's own
kernels.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import cuda, float32, vectorize

from flash_attest.emulator.devices import emulated
from flash_attest.emulator.numba import as_cuda
from flash_attest.races.tracing import trace


@cuda.jit
def add(x, y, out):
    i, j = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] + y[i, j]


def matrix():
    return np.arange(20, dtype=np.float32).reshape(4, 5)


def test_arrays_go_to_the_device_and_back():
    x = matrix()
    on_device, out = cuda.to_device(x), cuda.device_array_like(x)
    add[(1, 1), (8, 8)](on_device, x, out)
    assert np.array_equal(out.copy_to_host(), 2 * matrix())
    into = np.zeros((4, 5), np.float32)
    out.copy_to_host(into)
    assert np.array_equal(into, 2 * matrix())
    x += 1
    assert np.array_equal(on_device.copy_to_host(), matrix())  # a copy


def test_what_a_new_device_array_holds_is_no_number():
    assert np.isnan(cuda.device_array((3, 4), np.float64).copy_to_host()).all()


def test_device_arrays_have_views_and_are_assigned_to():
    x = cuda.to_device(matrix())
    assert x[1, 2] == 7 and x[-1, 4] == 19
    x[1, 2] = 70
    x[0] = 5
    x[2:, 1:3] = matrix()[:2, :2].copy()
    wanted = matrix()
    wanted[1, 2], wanted[0], wanted[2:, 1:3] = 70, 5, matrix()[:2, :2]
    assert np.array_equal(x.copy_to_host(), wanted)
    assert np.array_equal(x.T.copy_to_host(), wanted.T)
    assert np.array_equal(x.ravel()[3:9].copy_to_host(), wanted.ravel()[3:9])
    assert np.array_equal(x.reshape(5, 4).copy_to_host(), wanted.reshape(5, 4))
    out = cuda.device_array((2, 5), np.float32)
    add[(1, 1), (8, 8)](x[1:3], x[1:3], out)
    assert np.array_equal(out.copy_to_host(), 2 * wanted[1:3])
    assert x[:, :0].copy_to_host().shape == (4, 0)


def test_a_broadcast_array_keeps_its_stride_of_0():
    x, out = np.broadcast_to(matrix()[1], (4, 5)), np.zeros((4, 5), np.float32)
    on_device = cuda.to_device(x)
    assert on_device.strides == (0, 4)
    add[(1, 1), (8, 8)](on_device, x, out)
    assert np.array_equal(out, 2 * x)


def test_findings_name_a_device_array_by_the_argument():
    out = cuda.device_array((2, 2), np.float32)

    @cuda.jit
    def beyond(out):
        out[cuda.threadIdx.x, 2] = 1

    findings = list(map(str, trace(lambda: beyond[1, 2](out))))
    assert any("outside: out, writes 4 bytes" in finding for finding in findings), findings


def test_in_is_not_copied_back_and_out_is_not_copied_in():
    x, y, out = matrix(), matrix(), matrix()

    @cuda.jit
    def change(x, y, out):
        i = cuda.grid(1)
        x[0, i] = y[0, i] = 9
        if i:
            out[0, i] = i

    change[1, 5](cuda.In(x), cuda.InOut(y), cuda.Out(out))
    assert np.array_equal(x, matrix()) and (y[0] == 9).all()
    assert out[0, 1:].tolist() == [1, 2, 3, 4] and np.isnan(out[1:]).all() and np.isnan(out[0, 0])


def test_pinned_mapped_and_managed_memory():
    @cuda.jit
    def increase(x):
        x[cuda.grid(1)] += 1

    for make in cuda.pinned_array, cuda.mapped_array, cuda.managed_array:
        x = make(5, np.float32)
        x[:] = 3
        increase[1, 5](x)
        assert (x == 4).all(), make
    x = matrix()
    with cuda.pinned(x), cuda.mapped(x) as mapped:
        increase[1, 5](mapped[1])
    assert (x[1] == matrix()[1] + 1).all()


def test_streams_and_events():
    stream, start, end = cuda.stream(), cuda.event(), cuda.event()
    start.record(stream)
    x = cuda.to_device(matrix(), stream=stream)
    out = cuda.device_array((4, 5), np.float32, stream=stream)
    with stream.auto_synchronize():
        add[(1, 1), (8, 8), stream](x, x, out)
    for other in cuda.default_stream(), cuda.external_stream(1234), cuda.per_thread_default_stream():
        add[(1, 1), (8, 8), other](x, x, out)
    assert np.array_equal(out.copy_to_host(stream=stream), 2 * matrix())
    end.record(stream)
    end.synchronize(), end.wait(stream), cuda.synchronize(), stream.synchronize()
    assert end.query() and 0 < cuda.event_elapsed_time(start, end) < 60_000


def test_the_device():
    device = cuda.get_current_device()
    assert cuda.is_available() and len(cuda.gpus) == 1 and cuda.detect()
    assert (
        device.compute_capability == emulated().capability
        and device.WARP_SIZE == 32
        and device.MAX_THREADS_PER_BLOCK == 1024
    )
    assert cuda.select_device(0).id == device.id and cuda.current_context().get_memory_info().free > 2**30
    with cuda.gpus[0], cuda.defer_cleanup(), cuda.profiling():
        pass
    with pytest.raises(ValueError, match="device 1: there is one, number 0"):
        cuda.select_device(1)
    with pytest.raises(AttributeError, match="no NUMBER_OF_LIONS"):
        _ = device.NUMBER_OF_LIONS


def test_reductions_and_ufuncs_of_numba():
    total = cuda.reduce(lambda a, b: a + b)
    x = np.arange(1000, dtype=np.float64)
    assert total(x) == x.sum() and total(cuda.to_device(x), init=1) == x.sum() + 1

    @vectorize([float32(float32, float32)], target="cuda")
    def product(a, b):
        return a * b

    assert np.array_equal(product(matrix(), matrix() + 1), matrix() * (matrix() + 1))


def test_other_arrays_that_say_where_they_lie():
    """CuPy's arrays, for example, give their address by __cuda_array_interface__."""

    class Elsewhere:
        def __init__(self, array):
            self.array = array

        @property
        def __cuda_array_interface__(self):
            return {**self.array.__array_interface__, "version": 3}

    x, out = matrix(), np.zeros((4, 5), np.float32)
    add[(1, 1), (8, 8)](Elsewhere(x), cuda.as_cuda_array(Elsewhere(x)), Elsewhere(out))
    assert np.array_equal(out, 2 * matrix())


def doubled(x: torch.Tensor) -> torch.Tensor:
    """Double x as a package does: accept only tensors on a GPU, and launch on torch's stream."""
    if not x.is_cuda:
        raise ValueError("x should be on a GPU")
    out = torch.empty(x.shape, device="cuda")
    stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    add[(1, 1), (8, 8), stream](cuda.as_cuda_array(x), cuda.as_cuda_array(x), cuda.as_cuda_array(out))
    torch.cuda.synchronize()
    return out


def test_host_code_that_asks_torch_for_a_gpu_runs_as_cuda():
    x = torch.randn(4, 5)
    with as_cuda():
        assert torch.equal(doubled(x), 2 * x)
        with pytest.raises(RuntimeError, match="requires gradients"):
            doubled(x.requires_grad_())
    with pytest.raises(ValueError, match="should be on a GPU"):
        doubled(x)
    assert not hasattr(x.detach(), "__cuda_array_interface__")
