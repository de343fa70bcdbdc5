"""The shares of a profile's cases that some implementations get (Implementation.share)."""

# PyTorch's kernels: many other suites test them, and a run of all implementations should take
# minutes.
OTHERS_TEST_IT = {"cpu": 0.5, "cuda": 0.5}
# PyTorch's kernels that cost 0.1 s for each new shape: cuDNN makes a plan, TorchInductor compiles.
MADE_FOR_EACH_SHAPE = {"cuda": 0.25}
# An implementation that shares most of its code with another one.
VARIANT = {"cpu": 0.05, "cuda": 0.25}
# A form of python_tiled: it computes the same tiles, which take as long as emulated kernels.
FORM_OF_TILED = {"cpu": 0.15}
# FlashAttention 1: one block computes a whole head, so most of a GPU is idle.
BLOCK_FOR_EACH_HEAD = {"cuda": 0.33}
