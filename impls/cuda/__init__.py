"""FlashAttention 1 and 2 in CUDA C++, forward and backward, and as PyTorch operators. Read fa2_forward.cuh first.

fa1.cu, fa2.cu       the host functions: which kernel, how many blocks, how much shared memory; what is refused
*.cuh                the kernels and their parts
problem.cuh, .py     a call as integers: sizes, mask, dtypes, strides, as Python passes it
binding.h, fa?_binding.cpp   the host functions as operators on CUDA tensors (LibTorch's stable ABI)
extension.py         builds them, once           host.py    calls them, or for the CPU the same files compiled by g++
algorithm.py         from tensors to tensors: check, allocate, call
functions.py         flash_attention_1 and flash_attention_2, with autograd, torch.compile and CUDA graphs
multihead.py         multihead_attention, on matrices whose columns hold the heads
declared.py          the Implementations that the suite judges

Importing this package compiles nothing. The first call on a device does; later processes reuse the result.
"""

from .declared import implementations
from .functions import flash_attention_1, flash_attention_2
from .multihead import multihead_attention

__all__ = ["flash_attention_1", "flash_attention_2", "multihead_attention"]

IMPLS = implementations()
