"""The benchmark of windows: its calls are right on a CPU, and wrong ones are not timed."""

from dataclasses import replace

import torch

from flash_attest.bench import windows
from flash_attest.impls import torch_math


def plain(**options):
    return windows.case_of(8, tokens=16).but(nheads=2, nheads_k=2, headdim=4, dtype=torch.float32, **options)


def test_a_window_is_timed_beside_all_keys():
    all_keys, few = windows.lines(torch_math.IMPL, plain(), 3, "cpu", 0.0)
    assert all_keys.text.startswith("all keys") and few.text.startswith("3 keys")
    assert all("forward" in text and "backward" in text and " ms " in text for text in (all_keys.text, few.text))
    assert all_keys.text.split()[-1] == "1.00"


def test_an_ignored_window_is_not_timed():
    def ignoring(q, k, v, *, window, **options):
        return torch_math.forward(q, k, v, window=None, **options)

    all_keys, few = windows.lines(replace(torch_math.IMPL, forward=ignoring), plain(), 3, "cpu", 0.0)
    assert not all_keys.wrong
    assert few.wrong and "wrong: out of batch" in few.text


def test_the_mask_of_blocks_is_the_window():
    mask = windows.blocks_of(512, True, (255, None), torch.device("cpu"))
    keys = torch.arange(512)
    sees = (keys <= keys[:, None]) & (keys >= keys[:, None] - 255)
    assert all(mask.mask_mod(0, 0, i, j) == sees[i, j] for i in range(0, 512, 37) for j in range(0, 512, 29))
    tiles = sees.unflatten(1, (4, 128)).unflatten(0, (4, 128)).any(3).any(1)
    assert torch.equal(mask.to_dense()[0, 0].bool(), tiles)
