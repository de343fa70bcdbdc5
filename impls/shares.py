"""How large a share of a profile's cases some of our implementations get (Implementation.share), and why."""

# PyTorch's kernels on a CPU: many others test them, and a run on two cores should take minutes.
OTHERS_TEST_IT = {"cpu": 0.5}
# An implementation that shares most of its code with another one. Emulated kernels take long.
VARIANT = {"cpu": 0.05, "cuda": 0.5}
