"""What tests of our functions in PyTorch's machinery share, whichever kernels are behind them."""

import torch


def assert_same_bits(got, want):
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.0)


def captured(step):
    """step() -> a CUDA graph of it, and the outputs that a replay writes."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        step()  # compiles, which is not allowed while capturing
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    return graph, outputs
