"""How large a share of a profile's cases some of our implementations get (Implementation.share), and why."""

# PyTorch's kernels: many others test them, and a run of everything should take minutes, on two cores and on a GPU.
OTHERS_TEST_IT = {"cpu": 0.5, "cuda": 0.5}
# Those of them for which each shape takes a tenth of a second first: cuDNN makes a plan for it, TorchInductor compiles.
MADE_FOR_EACH_SHAPE = {"cuda": 0.25}
# An implementation that shares most of its code with another one.
VARIANT = {"cpu": 0.05, "cuda": 0.25}
# FlashAttention 1: one block has a whole head, so that most of a GPU has nothing to do.
BLOCK_FOR_EACH_HEAD = {"cuda": 0.33}
