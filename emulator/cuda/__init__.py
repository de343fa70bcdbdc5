"""CUDA C++ on a CPU: an author's .cu runs unmodified, and every access can be traced.

The documentation is docs/use/tracing-cuda.md. In Python, `loading` chooses the route. Through g++,
`source` rewrites a .cu to C++ and `build` compiles it. Through nvcc, for inline PTX, `nvcc`
compiles it and `compiled` runs its kernels on the PTX engine. `module` calls either with tensors.
In C++, include/ is the shim that stands in for CUDA's headers; host/ has the CUDA runtime API and
the hooks of g++'s instrumentation; cudart/ is the library that host code compiled by nvcc calls.
"""

from flash_attest.emulator.cuda.loading import load
from flash_attest.emulator.cuda.module import CudaError, CudaFile, Function
from flash_attest.emulator.errors import CompileError, NoCompiler, Refused

__all__ = ["CompileError", "CudaError", "CudaFile", "Function", "NoCompiler", "Refused", "load"]
