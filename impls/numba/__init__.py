"""FlashAttention 1 and 2 in Numba, forward and backward. Read fa2.py first.

fa2.py, fa1.py      the forwards
backward.py         the backward of both; bias_gradient.py adds dbias
tiles.py            tiles in shared memory and registers, and their products, for all kernels
matmul.py           a tiled matrix product, made of the same device functions
scores.py           scale, bias and mask; probabilities
memory.py           matrices in memory
elements.py         elements of every dtype as float32
problem.py          sizes, mask, strides, and all checks
tuning.py           the tiles that fit a device
launch.py           launching a kernel on tensors
on_gpu.py           fast launches on a GPU
shared_memory.py    more shared memory than a launch of Numba can ask for
device.py           a GPU, or the emulator
attention.py        calls on tensors: check, allocate, launch
functions.py        flash_attention_1 and _2, with autograd, torch.compile and CUDA graphs
declared.py         the Implementations that the suite judges
"""

from flash_attest.impls import Absent

from .device import lacking

NAMES = ("numba_fa1", "numba_fa2", "numba_fa2_top_left")

if not (reason := lacking()):
    from .declared import IMPLS
else:
    IMPLS = [Absent(name, reason) for name in NAMES]
