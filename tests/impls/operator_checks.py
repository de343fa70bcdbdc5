"""Helpers for tests of our PyTorch operators: equal bits, CUDA graphs, a second GPU."""

import pytest
import torch

# Each worker of pytest -n sees one GPU (conftest.py).
on_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs, and -n 0")


def assert_same_bits(got, want):
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.0)


def captured(step):
    """Capture step() in a CUDA graph. Returns the graph, and the outputs that a replay writes."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        step()  # compiles, which is not allowed during a capture
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    return graph, outputs
