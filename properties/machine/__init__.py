"""The machine that judges: its GPUs and their memory, its clock, where the oracle computes."""

import os

# torch.cuda.is_available() then counts GPUs without CUDA: a process that has used CUDA cannot fork another one that uses it.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
