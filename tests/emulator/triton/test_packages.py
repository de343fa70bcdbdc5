"""Packages that ask torch for a GPU: as_cuda() answers, and only inside its block."""

from __future__ import annotations

import importlib

import pytest
import torch

from flash_attest.emulator.triton import as_cuda
from flash_attest.races.tracing import tracing

NAME = "tests.emulator.triton.package_like"


@pytest.fixture(scope="module")
def package():
    with as_cuda():
        return importlib.import_module(NAME)


def test_without_it_the_package_cannot_even_be_imported(package):
    with pytest.raises(RuntimeError, match="no CUDA device found"):
        importlib.reload(package)


def test_the_package_runs_forward_and_backward_plainly_and_traced(package):
    x = torch.arange(1000.0).requires_grad_()
    with as_cuda():
        out = package.scale(x, 3.0)
        (dx,) = torch.autograd.grad(out, x, torch.ones_like(out))
    assert torch.equal(out, 3 * x) and torch.equal(dx, torch.full_like(x, 3.0))
    with tracing() as watch, as_cuda():
        package.scale(x.detach(), 3.0)
    assert watch.launches and not watch.findings


def test_a_mistake_of_the_package_is_found_with_its_line(package):
    x, out = torch.arange(100.0), torch.empty(90)
    with tracing() as watch, as_cuda():
        package.scale_kernel[(1,)](x, out, torch.ones(1), 100)
    (finding,) = watch.findings
    assert "past the end of out" in finding.headline and "package_like.py:" in finding.headline


def test_outside_of_the_block_torch_says_what_it_said_before(package):
    x = torch.ones(3)
    with as_cuda(), as_cuda():
        assert x.is_cuda and x.get_device() == 0 and torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (8, 0) and torch.cuda.device_count() == 1
    assert not x.is_cuda and x.get_device() == -1 and not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        package.launched(x, 2.0)
    with pytest.raises((AssertionError, RuntimeError)):
        torch.empty(3, device="cuda")


def test_an_error_inside_ends_the_pretence():
    with pytest.raises(ZeroDivisionError), as_cuda():
        1 / 0  # noqa: B018
    assert not torch.cuda.is_available() and not torch.ones(1).is_cuda


def test_what_is_made_on_cuda_is_on_the_cpu():
    with as_cuda():
        tensors = [
            torch.empty(2, device="cuda"),
            torch.zeros(2, device=torch.device("cuda", 0)),
            torch.ones(2).to("cuda:0"),
            torch.ones(2).to(torch.device("cuda"), torch.float16),
            torch.ones(2).to(device="cuda", dtype=torch.float16),
            torch.ones(2).cuda(),
            torch.empty_like(torch.ones(2), device="cuda"),
        ]
        assert all(x.is_cuda for x in tensors)
    assert {x.device.type for x in tensors} == {"cpu"} and tensors[3].dtype == tensors[4].dtype == torch.float16
