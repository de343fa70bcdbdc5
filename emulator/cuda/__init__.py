"""CUDA C++ on a CPU: an author's .cu runs unmodified, and every access can be traced (docs/tracing-cuda.md).

Python: `source` rewrites a .cu to C++, `build` compiles it, `module` calls it with tensors. C++: include/ is the shim that
stands in for CUDA's headers; host/ has the CUDA runtime API and the hooks of g++'s instrumentation.
"""

from emulator.cuda.module import CudaError, CudaFile, Function, load
from emulator.errors import CompileError, NoCompiler, Refused

__all__ = ["CompileError", "CudaError", "CudaFile", "Function", "NoCompiler", "Refused", "load"]
