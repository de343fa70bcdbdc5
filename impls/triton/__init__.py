"""FlashAttention-2 in Triton, forward and backward, and decoding from pages. Read forward.py first,
then backward.py; decode.py and merge.py are a pair of their own.

tiles.py          loading and storing tiles; scores; every mask
forward.py        Algorithm 1
backward.py       Algorithm 2, with dq in its own kernel or by atomics
bias_gradient.py  dbias
decode.py         forward from a paged cache, the keys in splits
merge.py          merging the parts of splits
paged.py          calls of these two on tensors
attention.py      calls on tensors: allocate and launch
tma.py            the forward with tensor descriptors and warps of their own for copies (Hopper)
varlen.py         the same for sequences of different lengths, packed one behind the other
packed.py         where such sequences lie, and the checks of it
problem.py        sizes, mask, scale, and all checks
tuning.py         tile sizes, warps, stages
functions.py      flash_attn_func and its packed forms, with autograd, torch.compile, CUDA graphs
every_tile.py     one Implementation for each choice that tuning may make
device.py         a GPU, or the emulator
"""

from flash_attest.impls import Absent

from .device import lacking

NAMES = (
    "triton_fa2",
    "triton_fa2_atomic",
    "triton_fa2_tf32",
    "triton_fa2_top_left",
    "triton_fa2_varlen",
    "triton_fa2_tma",
    "triton_paged_decode",
    "triton_merge_parts",
)

if not (reason := lacking()):
    from .declared import IMPLS
else:
    IMPLS = [Absent(name, reason) for name in NAMES]
