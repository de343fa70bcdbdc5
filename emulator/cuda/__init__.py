"""CUDA C++ on the CPU: an author's .cu runs unmodified, and under a tracer that sees every race (docs/tracing-cuda.md)."""

from emulator.cuda.module import CudaFile, Function, load
from emulator.errors import CompileError, CudaError, NoCompiler, Refused
from emulator.tracing import Tracing, trace, tracing

__all__ = [
    "CompileError", "CudaError", "CudaFile", "Function", "NoCompiler", "Refused", "Tracing", "load", "trace", "tracing",
]  # fmt: skip
