"""FlashAttention 1 and 2 in CUDA C++, forward and backward, as PyTorch operators.

Read fa2_forward.cuh first.

fa1.cu, fa2.cu       the host functions: choose kernel, blocks and shared memory, or refuse a call
*.cuh                the kernels and their parts
problem.cuh, .py     a call as integers: sizes, mask, dtypes, strides
binding.h, fa?_binding.cpp   the host functions as operators on CUDA tensors (LibTorch's stable ABI)
extension.py         builds the operators, once
host.py              calls the host functions; g++ compiles them for the CPU
algorithm.py         calls on tensors: check, allocate, call a host function
functions.py         flash_attention_1 and _2, with autograd, torch.compile and CUDA graphs
multihead.py         multihead_attention, on matrices whose columns hold the heads
declared.py          the Implementations that the suite judges

Importing this package compiles nothing. The first call on a device compiles; later processes reuse
the result.
"""

from .declared import implementations
from .functions import flash_attention_1, flash_attention_2
from .multihead import multihead_attention

__all__ = ["flash_attention_1", "flash_attention_2", "multihead_attention"]

IMPLS = implementations()
