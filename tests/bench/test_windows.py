"""The benchmark of windows: its calls are right on a CPU, and wrong ones are not timed."""

from dataclasses import replace

import pytest
import torch

from flash_attest.bench import windows
from flash_attest.impls import torch_math


def plain(**options):
    return windows.case_of(8, tokens=16).but(nheads=2, nheads_k=2, headdim=4, dtype=torch.float32, **options)


def test_a_window_is_timed_beside_all_keys():
    all_keys, few = windows.lines(torch_math.IMPL, plain(), 3, "cpu", 0.0)
    assert all_keys.startswith("all keys") and few.startswith("3 keys")
    assert all("forward" in line and "backward" in line and " ms " in line for line in (all_keys, few))
    assert all_keys.split()[-1] == "1.00"


def test_an_ignored_window_is_not_timed():
    def ignoring(q, k, v, *, window, **options):
        return torch_math.forward(q, k, v, window=None, **options)

    all_keys, few = windows.lines(replace(torch_math.IMPL, forward=ignoring), plain(), 3, "cpu", 0.0)
    assert "wrong" not in all_keys
    assert "wrong: out of batch" in few


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_it_needs_a_gpu(capsys):
    assert windows.main() == 2
    assert "there is no GPU" in capsys.readouterr().err
