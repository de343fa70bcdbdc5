"""Triton's first tutorial, with its checks of the device."""

import pytest
import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)


def add(x: torch.Tensor, y: torch.Tensor):
    output = torch.empty_like(x)
    assert x.device == DEVICE and y.device == DEVICE and output.device == DEVICE
    n_elements = output.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)  # noqa: E731
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output


@pytest.mark.parametrize("size", [1, 1000, 98432])
def test_add(size):
    torch.manual_seed(0)
    x = torch.rand(size, device=DEVICE)
    y = torch.rand(size, device=DEVICE)
    torch.testing.assert_close(add(x, y), x + y)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_it_takes_tensors_of_the_gpu_only():
    on_host = torch.rand(10)
    with pytest.raises(AssertionError):
        add(on_host, on_host)
    on_gpu = on_host.to("cuda", non_blocking=True)
    on_gpu += 1
    torch.cuda.synchronize()
    assert not torch.equal(on_gpu.cpu(), on_host)
    assert on_gpu.cpu().device == torch.device("cpu") and on_gpu.device == torch.device("cuda", 0)


def test_it_is_timed():
    x = torch.rand(1000, device=DEVICE)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    add(x, x)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert triton.testing.do_bench(lambda: add(x, x), warmup=1, rep=1) > 0
