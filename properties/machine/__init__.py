"""The machine that judges: its GPUs and their memory, its clock, and the device of the oracle."""

import os

# Makes torch.cuda.is_available() count GPUs without CUDA. A process that has used CUDA cannot fork
# one that uses it.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
