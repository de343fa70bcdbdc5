"""What can go wrong before and while a .cu runs on the CPU, each in words that say what to change."""

from __future__ import annotations


class CudaError(RuntimeError):
    """A launch failed, or a kernel did what ends it on a GPU: a deadlock, an illegal address, a trap."""


class CompileError(CudaError):
    """g++ does not take the file; the message is g++'s, about the author's lines."""


class Refused(CompileError):
    """The file uses what no CPU can stand in for (inline PTX, cooperative groups, ...): the reason and the line."""

    def __init__(self, reason: str, file: str, line: int):
        super().__init__(f"{file}:{line}: not covered on the CPU: {reason}")
        self.reason, self.file, self.line = reason, file, line


class NoCompiler(CudaError):
    """There is no g++ on this machine."""
